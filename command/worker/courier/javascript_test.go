package courier_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/deploy/pgdev/npmtest"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/projection/delivery/deliverytest"
)

func TestCourier_JavaScriptVerifies(t *testing.T) {
	t.Parallel()
	w := deliverytest.New(t)
	r := receive(t, good)
	id := target(t, w, r.URL)
	send(t, w)
	w.Append(t, "acme", event.LeadStream(w.NewID()), deliverytest.NewLead("Ann"), event.LeadUpdated{
		LeadFields: event.LeadFields{Name: "Zoë Łukasz 李"},
	})
	require.Equal(t, map[string]int{"delivered": 2}, states(t, w, id, 2))

	type delivery struct {
		Headers map[string]string `json:"headers"`
		Body    string            `json:"body"`
	}
	given := struct {
		Secret     string     `json:"secret"`
		Deliveries []delivery `json:"deliveries"`
	}{Secret: first}
	for _, a := range r.got() {
		d := delivery{Headers: map[string]string{}, Body: string(a.body)}
		for name := range a.header {
			d.Headers[strings.ToLower(name)] = a.header.Get(name)
		}
		given.Deliveries = append(given.Deliveries, d)
	}
	input, err := json.Marshal(given)
	require.NoError(t, err)
	verify := exec.CommandContext(t.Context(), "node",
		filepath.Join(npmtest.Install(t, "testdata/standardwebhooks"), "verify.js"))
	verify.Stdin = bytes.NewReader(input)
	said, err := verify.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Equal(t, "verified 2\n", string(said))
}
