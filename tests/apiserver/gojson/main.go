// Answers as the platform's Go code does: for each line of JSON on standard input, with the text of a
// status annotation and of a live status, whether a connector is online, its node id, and the
// annotation's canonical form. tests/fuzz.rs compares throughline's answers with these.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
)

type connectorStatus struct {
	Conditions        []metav1.Condition `json:"conditions,omitempty"`
	Capabilities      []capability       `json:"capabilities,omitempty"`
	ConnectionDetails *connectionDetails `json:"connectionDetails,omitempty"`
	LeaseRef          *leaseRef          `json:"leaseRef,omitempty"`
}

type capability struct {
	Type       string             `json:"type"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

type connectionDetails struct {
	Type      string     `json:"type"`
	PublicKey *publicKey `json:"publicKey,omitempty"`
}

type publicKey struct {
	ID            string    `json:"id,omitempty"`
	DiscoveryMode string    `json:"discoveryMode,omitempty"`
	HomeRelay     string    `json:"homeRelay"`
	Addresses     []address `json:"addresses"`
}

type address struct {
	Address string `json:"address"`
	Port    int32  `json:"port"`
}

type leaseRef struct {
	Name string `json:"name,omitempty"`
}

type question struct {
	Annotation string `json:"annotation"`
	Live       string `json:"live"`
}

type answer struct {
	Online    bool    `json:"online"`
	NodeID    string  `json:"node_id"`
	Canonical *string `json:"canonical"`
}

// read is what the extension server does: the annotation if it decodes, else the live status.
func read(q question) (online bool, nodeID string) {
	var status connectorStatus
	if err := json.Unmarshal([]byte(q.Annotation), &status); err != nil {
		status = connectorStatus{}
		if err := json.Unmarshal([]byte(q.Live), &status); err != nil {
			return false, ""
		}
	}
	online = meta.IsStatusConditionTrue(status.Conditions, "Ready")
	if d := status.ConnectionDetails; online && d != nil && d.Type == "PublicKey" && d.PublicKey != nil {
		nodeID = d.PublicKey.ID
	}
	return online, nodeID
}

// canonical is what the replicator writes; nil where it refuses the text.
func canonical(text string) *string {
	var value any
	if err := k8sjson.Unmarshal([]byte(text), &value); err != nil {
		return nil
	}
	written, err := json.Marshal(value)
	if err != nil {
		log.Fatal(err)
	}
	form := string(written)
	return &form
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			log.Fatal(err)
		}
		online, nodeID := read(q)
		if err := encoder.Encode(answer{online, nodeID, canonical(q.Annotation)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}
