package systemtest

import (
	"net/http"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/client"
	"github.com/leadlog/leadlog/httpapi/openapi"
)

func TestGoClient(t *testing.T) {
	t.Parallel()
	_, jwt, base := startService(t)
	ctx := t.Context()
	manager, err := client.New(base, jwt)
	require.NoError(t, err)

	token, err := manager.CreateTokenWithResponse(ctx, client.NewToken{Name: "form", ExpiresInDays: 30})
	require.NoError(t, err)
	require.NotNil(t, token.JSON201, string(token.Body))
	form, err := client.New(base, token.JSON201.Data.PlainToken)
	require.NoError(t, err)

	arrival := client.LeadArrival{
		Name: new("Asha Rao"), Phone: "98765 43210", OpportunityValue: "₹1,20,000",
		Metadata:     &client.ArrivalMetadata{Source: "website", AdditionalProperties: map[string]any{"utm_campaign": "diwali"}},
		CustomFields: &map[string]any{"city": "Pune"},
	}
	created, err := form.CaptureLeadWithResponse(ctx, &client.CaptureLeadParams{IdempotencyKey: new("order-1")}, arrival)
	require.NoError(t, err)
	require.NotNil(t, created.JSON201, string(created.Body))
	lead := created.JSON201.Data
	require.Equal(t, "+919876543210", lead.Phone)
	require.InDelta(t, 120000, *lead.OpportunityValue, 0)
	require.Equal(t, map[string]any{"city": "Pune"}, lead.CustomFields)
	again, err := form.CaptureLeadWithResponse(ctx, &client.CaptureLeadParams{IdempotencyKey: new("order-1")}, arrival)
	require.NoError(t, err)
	require.Equal(t, created.JSON201, again.JSON201)
	require.Equal(t, "true", again.HTTPResponse.Header.Get("Idempotent-Replayed"))

	merged, err := form.CaptureLeadWithResponse(ctx, nil, client.LeadArrival{Phone: 9876543210, Email: new("asha@example.com")})
	require.NoError(t, err)
	require.True(t, merged.JSON200.Merged)
	refused, err := form.CaptureLeadWithResponse(ctx, nil, client.LeadArrival{Phone: "9876543210"})
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, refused.StatusCode())
	require.EqualValues(t, "DUPLICATE_LEAD_SOURCE", *refused.JSONDefault.Code)
	wrong, err := form.CaptureLeadWithResponse(ctx, nil, client.LeadArrival{Email: new("nope")})
	require.NoError(t, err)
	require.Equal(t, "email", (*wrong.JSONDefault.Errors)[0].Field)

	written := merged.HTTPResponse.Header.Get("X-Log-Position")
	sources, err := manager.ListLeadSourcesWithResponse(ctx, lead.LeadId, &client.ListLeadSourcesParams{MinPosition: &written})
	require.NoError(t, err)
	require.Len(t, sources.JSON200.Data, 2)
	require.Equal(t, token.JSON201.Data.TokenId, sources.JSON200.Data[0].Credential.Id)
	forbidden, err := form.ListLeadsWithResponse(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, forbidden.StatusCode(), "an API token reads nothing")
}

// requireDescribed requires a delivered body to match the schema of its type in the API's document.
func requireDescribed(t *testing.T, body []byte) {
	t.Helper()
	var document, message any
	require.NoError(t, json.Unmarshal(openapi.Document(""), &document))
	require.NoError(t, json.Unmarshal(body, &message))
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("openapi.json", document))
	kind := message.(map[string]any)["type"].(string)
	schema, err := compiler.Compile("openapi.json#/webhooks/" + kind + "/post/requestBody/content/application~1json/schema")
	require.NoError(t, err)
	require.NoError(t, schema.Validate(message), string(body))
}
