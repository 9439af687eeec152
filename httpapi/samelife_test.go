package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
)

// TestIsolation_IdenticalAccounts has two accounts do the same things, with the same people, visitors and idempotency
// keys, by every operation of the document. Neither may be told anything else than the other.
func TestIsolation_IdenticalAccounts(t *testing.T) {
	t.Parallel()
	w := tenancy(t)
	w.furnishOurs()
	for _, o := range operations() {
		if scopes, _ := o.scopes(); len(scopes) == 0 {
			continue // the same for everybody
		}
		w.ours.caughtUp()
		for i, c := range o.bodies(t) {
			c = w.keyed(t, o, c, i)
			example := c.body
			c.body = w.names["theirs"].Replace(example)
			c.path, c.credential = w.names["theirs"].Replace(o.path)+o.required(w.names["theirs"]), w.theirs.jwt
			want := w.theirs.request(c)
			c.body = w.names["ours"].Replace(example)
			c.path, c.credential = w.names["ours"].Replace(o.path)+o.required(w.names["ours"]), w.ours.jwt
			got := w.ours.request(c)
			require.Equal(t, want.status, got.status, "%s %s: %s", o.method, o.path, got.raw)
			require.Equal(t, shape(t, want), shape(t, got), "%s %s", o.method, o.path)
			require.Equal(t, want.header.Get("Idempotent-Replayed"), got.header.Get("Idempotent-Replayed"), o.path)
			w.holdNothing(t, got)
		}
	}
}

// furnishOurs gives us what they have, under other names.
func (w *tenants) furnishOurs() {
	twin := &tenants{theirs: w.ours}
	twin.furnish(w.names["ours"])
	w.secrets = slices.DeleteFunc(w.secrets, func(s string) bool { return s == stranger || s == "9988776655" })
	w.ours.caughtUp()
}

// keyed adds the headers that an operation may have.
func (w *tenants) keyed(t *testing.T, o operation, c call, n int) call {
	for _, p := range o.Parameters {
		if p.Value.In != "header" {
			continue
		}
		require.Equal(t, "Idempotency-Key", p.Value.Name, "%s %s has a new header: say here what it may be", o.method, o.path)
		header := map[string]string{p.Value.Name: "key-" + string(rune('a'+n))}
		for name, value := range c.header {
			header[name] = value
		}
		c.header = header
	}
	return c
}

// shape is what an answer says without what it says it of: its members, how many items lists have, truths, codes and
// messages.
func shape(t *testing.T, r reply) any {
	t.Helper()
	if !strings.Contains(r.header.Get("Content-Type"), "json") {
		return strings.Count(r.raw, "\n")
	}
	var lines []any
	for line := range strings.Lines(r.raw) {
		var value any
		require.NoError(t, json.Unmarshal([]byte(line), &value), r.raw)
		lines = append(lines, outline("", value))
	}
	return lines
}

func outline(name string, value any) any {
	switch value := value.(type) {
	case string:
		if name == "code" || name == "message" {
			return ulids.ReplaceAllString(value, "ID")
		}
		return ""
	case float64:
		if name == "status" {
			return value
		}
		return 0.0
	case []any:
		for i, one := range value {
			value[i] = outline("", one)
		}
	case map[string]any:
		for key, one := range value {
			value[key] = outline(key, one)
		}
	}
	return value
}
