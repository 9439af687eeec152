package main

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheSealingKeyIsRotatedUnnoticed does what the runbook says, with two processes: whoever comes to the one is known to the
// other, at each step and half way through it, and at the end the old key is not needed.
func TestTheSealingKeyIsRotatedUnnoticed(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	before, after := settings["LEADLOG_SEAL_KEY"], base64.StdEncoding.EncodeToString([]byte("another key of thirty-two bytes."))
	var processes [2]*program
	var bases [2]string
	for i := range processes {
		processes[i], bases[i] = serve(t, settings)
	}
	early := captureAs(t, bases[0], jwt, "early").data()["leadId"]
	people := 0
	known := func() {
		t.Helper()
		for i, base := range bases {
			people++
			came := fmt.Sprintf(`{"email":"number%d@example.com","metadata":{"source":"website"}}`, people)
			mustCall(t, "POST", base+"/api/v1/crm/leads", jwt, came).is(t, 201)
			mustCall(t, "POST", bases[1-i]+"/api/v1/crm/leads", jwt, came).is(t, 200)
			told := mustCall(t, "GET", fmt.Sprintf("%s/api/v1/crm/leads/%s/events", base, early), jwt, "")
			require.Contains(t, fmt.Sprint(told.body), "early@example.com")
		}
	}
	for _, keys := range []string{before + "," + after, after + "," + before, after} {
		settings["LEADLOG_SEAL_KEY"] = keys
		for i := range processes {
			processes[i].stop(t)
			processes[i], bases[i] = serve(t, settings)
			if keys != after {
				processes[i].sees(t, processes[i].err, `(nothing needs the earlier keys of LEADLOG_SEAL_KEY)`)
			}
			known()
		}
	}
}
