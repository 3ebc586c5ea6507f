// Prints what client-go's own EventCorrelator makes of a row of Events, a JSON object a line:
// tests/vectors/events.jsonl is its output, and tests/shell/event_vectors.rs holds throughline's to it.
//
//	cd tests/apiserver && go run ./eventcorrelator >../vectors/events.jsonl
//
// Of ten messages that are combined client-go drops any one, by chance: so none of these rows says again
// what it said before once it was combined.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock/testing"
)

type line struct {
	AtMs    int64  `json:"at_ms"`
	Object  string `json:"object"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// What became of it.
	Skip    bool   `json:"skip,omitempty"`
	Patch   bool   `json:"patch,omitempty"`
	Count   int32  `json:"count,omitempty"`
	FirstMs int64  `json:"first_ms,omitempty"`
	Says    string `json:"says,omitempty"`
	// The line that brought the Event of that name.
	Made int `json:"made"`
}

var (
	start = time.UnixMilli(1_795_252_772_000)
	clock = testing.NewFakePassiveClock(start)
	lines []*line
)

func say(object, kind, reason, message string) {
	lines = append(lines, &line{
		AtMs: clock.Now().UnixMilli(), Object: object, Type: kind, Reason: reason, Message: message,
	})
}

func wait(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

func rows() {
	// Equal ones are counted, each object, type, reason and message for itself.
	for range 3 {
		for _, object := range []string{"a", "b"} {
			say(object, "Warning", "Stalled", "m")
			say(object, "Warning", "Stalled", "n")
			say(object, "Warning", "Contention", "m")
			say(object, "Normal", "Stalled", "m")
		}
		wait(7 * time.Second)
	}
	// From the tenth message on they are combined; another reason is not; ten quiet minutes end it.
	for i := range 14 {
		say("c", "Warning", "Stalled", fmt.Sprintf("message %d", i))
		wait(time.Second)
	}
	say("c", "Warning", "Contention", "alone")
	wait(10 * time.Minute)
	say("c", "Warning", "Stalled", "within ten minutes, less one second")
	wait(10*time.Minute + time.Millisecond)
	say("c", "Warning", "Stalled", "after more than ten minutes")
	// 25 in a row, and then one in five minutes; Normal ones have a share of their own.
	for range 30 {
		say("d", "Warning", "Stalled", "m")
	}
	say("d", "Normal", "Recovered", "m")
	for range 3 {
		wait(4*time.Minute + 30*time.Second)
		say("d", "Warning", "Stalled", "m")
		wait(time.Minute)
		say("d", "Warning", "Stalled", "m")
	}
	wait(24 * time.Hour)
	for range 27 {
		say("d", "Warning", "Stalled", "m")
	}
}

func main() {
	rows()
	clock.SetTime(start)
	correlator := record.NewEventCorrelator(clock)
	made := map[string]int{}
	out := json.NewEncoder(os.Stdout)
	for i, line := range lines {
		clock.SetTime(time.UnixMilli(line.AtMs))
		now := metav1.NewTime(clock.Now())
		result, err := correlator.EventCorrelate(&v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("line-%d", i)},
			InvolvedObject: v1.ObjectReference{Namespace: "ns", Name: line.Object, ResourceVersion: fmt.Sprint(i)},
			Source:         v1.EventSource{Component: "throughline"},
			Type:           line.Type,
			Reason:         line.Reason,
			Message:        line.Message,
			FirstTimestamp: now,
			LastTimestamp:  now,
			Count:          1,
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "eventcorrelator:", err)
			os.Exit(1)
		}
		line.Skip, line.Made = result.Skip, -1
		if !result.Skip {
			event := result.Event
			if _, known := made[event.Name]; !known {
				made[event.Name] = i
			}
			line.Patch, line.Count, line.Says = event.Count > 1, event.Count, event.Message
			line.FirstMs, line.Made = event.FirstTimestamp.UnixMilli(), made[event.Name]
		}
		if err := out.Encode(line); err != nil {
			os.Exit(1)
		}
	}
}
