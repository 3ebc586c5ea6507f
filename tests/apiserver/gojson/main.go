// Answers as the platform's Go code does: for each line of JSON on standard input, with the text of a
// status annotation and of a live status, whether a connector is online, its node id, and the
// annotation's canonical form. tests/properties/fuzz.rs compares throughline's answers with these.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"throughline/tests/apiserver/platform"
)

type question struct {
	Annotation string `json:"annotation"`
	Live       string `json:"live"`
}

type answer struct {
	Online    bool    `json:"online"`
	NodeID    string  `json:"node_id"`
	Canonical *string `json:"canonical"`
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
		online, nodeID := platform.Read(q.Annotation, q.Live)
		canonical, err := platform.Canonical(q.Annotation)
		if err != nil {
			log.Fatal(err)
		}
		if err := encoder.Encode(answer{online, nodeID, canonical}); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}
