package httpapi

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/query"
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
				captured := command.LeadCaptured{Lead: state, Merged: merged, Replayed: dryRun}
				want, err := json.Marshal(struct {
					Success bool       `json:"success"`
					Merged  bool       `json:"merged"`
					DryRun  bool       `json:"dryRun,omitzero"`
					Data    query.Lead `json:"data"`
				}{true, merged, dryRun, query.NewLead(state)}, answerOptions)
				require.NoError(t, err)
				require.Equal(t, string(want), string(encodeCaptured(&captured, dryRun)))

				arrived := command.Arrived{Line: 7, LeadCaptured: captured}
				want, err = json.Marshal(struct {
					Line     int        `json:"line"`
					Status   int        `json:"status"`
					Success  bool       `json:"success"`
					Merged   bool       `json:"merged"`
					Data     query.Lead `json:"data"`
					Replayed bool       `json:"replayed,omitzero"`
				}{7, captureStatus(&captured), true, merged, query.NewLead(state), dryRun}, answerOptions)
				require.NoError(t, err)
				require.Equal(t, "before "+string(want), string(appendCapturedLine([]byte("before "), &arrived)))
			}
		}
	}
}
