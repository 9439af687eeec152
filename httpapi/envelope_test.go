package httpapi

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
)

func TestTheAnswerToACaptureIsWrittenAsTheLibraryWould(t *testing.T) {
	t.Parallel()
	states := []lead.State{{}, {
		ID: "l", ContactUID: "c", Name: "Asha \"Å\" <b>\u2028\x01", Phone: "+919876543210", OpportunityID: "o", OpportunityValue: "7.50",
		CustomFields: map[string]jsontext.Value{"b": jsontext.Value(`{"x":[1,"é"]}`), "a": jsontext.Value(`"\n"`)},
	}}
	for _, state := range states {
		for _, merged := range []bool{false, true} {
			for _, dryRun := range []bool{false, true} {
				status, body := captured(command.LeadCaptured{Lead: state, Merged: merged})
				body.DryRun = dryRun
				want, err := json.Marshal(body, answerOptions)
				require.NoError(t, err)
				got, err := encode(body)
				require.NoError(t, err)
				require.Equal(t, string(want), string(got))

				line := lineAnswer{Line: 7, Status: status, envelope: body, Replayed: dryRun}
				want, err = json.Marshal(line, answerOptions)
				require.NoError(t, err)
				got, err = line.append([]byte("before "))
				require.NoError(t, err)
				require.Equal(t, "before "+string(want), string(got))
			}
		}
	}
}
