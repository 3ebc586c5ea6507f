// Package platform answers as the platform's Go code does: what it reads from a connector's status, and how
// it writes one.
package platform

import (
	"encoding/json"

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

// Read is what the extension server does: the annotation if it decodes, else the live status.
func Read(annotation, live string) (online bool, nodeID string) {
	var status connectorStatus
	if err := json.Unmarshal([]byte(annotation), &status); err != nil {
		status = connectorStatus{}
		if err := json.Unmarshal([]byte(live), &status); err != nil {
			return false, ""
		}
	}
	online = meta.IsStatusConditionTrue(status.Conditions, "Ready")
	if d := status.ConnectionDetails; online && d != nil && d.Type == "PublicKey" && d.PublicKey != nil {
		nodeID = d.PublicKey.ID
	}
	return online, nodeID
}

// Canonical is what the replicator writes; nil where it refuses the text.
func Canonical(text string) (*string, error) {
	var value any
	if err := k8sjson.Unmarshal([]byte(text), &value); err != nil {
		return nil, nil
	}
	written, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	form := string(written)
	return &form, nil
}
