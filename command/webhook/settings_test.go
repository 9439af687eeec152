package webhook

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettings_Refused(t *testing.T) {
	t.Parallel()
	eleven := map[string]string{}
	for i := range 11 {
		eleven[fmt.Sprintf("X-%d", i)] = "v"
	}
	header := func(name, value string) Change { return Change{Headers: map[string]string{name: value}} }
	for name, c := range map[string]struct {
		change Change
		field  string
	}{
		"order":             {Change{Ordering: new("leads")}, "ordering"},
		"negative limit":    {Change{RateLimit: new(-1.0)}, "rateLimit"},
		"tiny limit":        {Change{RateLimit: new(0.001)}, "rateLimit"},
		"large limit":       {Change{RateLimit: new(10_001.0)}, "rateLimit"},
		"no number":         {Change{RateLimit: new(math.NaN())}, "rateLimit"},
		"eleven headers":    {Change{Headers: eleven}, "headers"},
		"signature":         {header("webhook-signature", "v1,x"), "headers.webhook-signature"},
		"id in capitals":    {header("WEBHOOK-ID", "1"), "headers.WEBHOOK-ID"},
		"host":              {header("host", "example.com"), "headers.host"},
		"type":              {header("Content-Type", "text/plain"), "headers.Content-Type"},
		"length":            {header("content-length", "1"), "headers.content-length"},
		"chunks":            {header("Transfer-Encoding", "chunked"), "headers.Transfer-Encoding"},
		"connection":        {header("Connection", "close"), "headers.Connection"},
		"upgrade":           {header("Upgrade", "h2c"), "headers.Upgrade"},
		"trailers":          {header("TE", "trailers"), "headers.TE"},
		"proxy":             {header("Proxy-Authorization", "Basic x"), "headers.Proxy-Authorization"},
		"no name":           {header("", "v"), "headers."},
		"blank in the name": {header("X Key", "v"), "headers.X Key"},
		"colon in the name": {header("X:", "v"), "headers.X:"},
		"non-ASCII name":    {header("Schlüssel", "v"), "headers.Schlüssel"},
		"empty":             {header("X-Key", " "), "headers.X-Key"},
		"long":              {header("X-Key", strings.Repeat("v", 4097)), "headers.X-Key"},
		"another line":      {header("X-Key", "v\r\nHost: other"), "headers.X-Key"},
		"mask":              {header("X-Key", "***"), "headers.X-Key"},
		"twice":             {Change{Headers: map[string]string{"X-Key": "a", "x-key": "b"}}, "headers.x-key"},
	} {
		_, _, err := live().Update("acme", c.change, false)
		require.Equal(t, []string{c.field}, fields(t, err), name)
	}
	ten := eleven
	delete(ten, "X-10")
	for name, c := range map[string]Change{
		"ten headers": {Headers: ten}, "credential": header("Authorization", "Bearer "+strings.Repeat("t", 4089)),
		"slow": {RateLimit: new(0.01)}, "fast": {RateLimit: new(10_000.0)}, "strict": {Ordering: new(ByEndpoint)},
	} {
		_, _, err := live().Update("acme", c, false)
		require.NoError(t, err, name)
	}
}
