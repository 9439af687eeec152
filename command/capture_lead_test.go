package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/account"
	"github.com/leadlog/leadlog/command/field"
)

func TestCapture_RemovedStageStaysValid(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"New", "Sold"}})
	p.captured(t, `{"phone":"9876543210","status":"Sold"}`)
	p.configure(t, account.Settings{Features: []string{account.FeatureAPI}, Stages: []string{"New"}})
	for range 3 {
		captured := p.captured(t, `{"phone":"9876543210","status":"sold","metadata":{"source":"website"}}`)
		require.Equal(t, "Sold", captured.Lead.Status)
		_, err := p.capture(t.Context(), `{"phone":"9876543219","status":"sold"}`)
		require.ErrorAs(t, err, &field.Errors{}, "a new lead cannot have a removed stage")
	}
}

func TestCapture_CustomFieldsTooLarge(t *testing.T) {
	t.Parallel()
	p := start(t, inMemory())
	p.provision(t)
	// A Hangul syllable of three code points of three bytes counts as one character: fifty of the longest fields exceed
	// any event.
	syllables := strings.Repeat("\u1112\u1161\u11ab", 2000)
	fields := make([]string, 50)
	for i := range fields {
		fields[i] = `"k` + strings.Repeat("x", i%40) + string(rune('a'+i/40)) + `":"` + syllables + `"`
	}
	_, err := p.capture(t.Context(), `{"phone":"9876543210","customFields":{`+strings.Join(fields, ",")+`}}`)
	var wrong field.Errors
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "customFields", wrong[0].Field)
	p.captured(t, `{"phone":"9876543210","customFields":{`+strings.Join(fields[:30], ",")+`}}`)
}

func TestCapture_LargestArrival(t *testing.T) {
	t.Parallel()
	p := start(t, database(t)) // sealed
	p.provision(t)
	syllables := strings.Repeat("\u1112\u1161\u11ab", 2000) // nine bytes per character
	fields := make([]string, 39)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"k%d":"%s"`, i, syllables)
	}
	for _, agent := range []int{1 << 10, 31 << 10} {
		body := fmt.Sprintf(`{"email":"p%d@example.com","name":"%s","customFields":{%s,"last":"%s"},`+
			`"metadata":{"userAgent":"%s"}}`, agent,
			syllables[:200*9], strings.Join(fields, ","), syllables[:13_500], strings.Repeat("x", agent))
		p.captured(t, body)
	}
}
