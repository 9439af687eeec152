package openapi_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/httpapi/openapi"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi.Document(""))
	require.NoError(t, err)
	return document
}

func TestDocument_Valid(t *testing.T) {
	t.Parallel()
	document := load(t)
	require.NoError(t, document.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()))
	document.Paths.Value("/healthz").Get.Responses.Status(200).
		Value.Content["application/json"].Examples["alive"].Value.Value = "dead"
	require.Error(t, document.Validate(t.Context()), "validation detects an invalid example")
}

func TestDocument_BasePath(t *testing.T) {
	t.Parallel()
	require.Contains(t, string(openapi.Document("")), `"url": "/"`)
	moved, err := openapi3.NewLoader().LoadFromData(openapi.Document("/crm"))
	require.NoError(t, err)
	require.Equal(t, "/crm", moved.Servers[0].URL)
}

// each runs a check on every operation.
func each(t *testing.T, check func(t *testing.T, path, method string, item *openapi3.PathItem, o *openapi3.Operation)) {
	t.Helper()
	for path, item := range load(t).Paths.Map() {
		for method, operation := range item.Operations() {
			t.Run(method+" "+path, func(t *testing.T) { check(t, path, method, item, operation) })
		}
	}
}

func TestDocument_OperationsDescribed(t *testing.T) {
	t.Parallel()
	var tags []string
	for _, tag := range load(t).Tags {
		tags = append(tags, tag.Name)
	}
	name, seen := regexp.MustCompile(`^[a-z][A-Za-z]+$`), map[string]bool{}
	each(t, func(t *testing.T, _, _ string, item *openapi3.PathItem, o *openapi3.Operation) {
		require.Regexp(t, name, o.OperationID)
		require.False(t, seen[o.OperationID], "operation ids are unique")
		seen[o.OperationID] = true
		require.NotEmpty(t, o.Summary)
		require.False(t, strings.HasSuffix(o.Summary, "."), "a heading")
		require.True(t, strings.HasSuffix(strings.TrimSpace(o.Description), "."), "sentences")
		require.Len(t, o.Tags, 1)
		require.Contains(t, tags, o.Tags[0])
		for _, p := range slices.Concat(item.Parameters, o.Parameters) {
			require.NotEmpty(t, p.Value.Description, p.Value.Name)
			require.True(t, !p.Value.Required || p.Value.Example != nil,
				"the page needs an example of %s", p.Value.Name)
		}
	})
}

func TestDocument_FailuresDescribed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, path, method string, _ *openapi3.PathItem, o *openapi3.Operation) {
		wanted := []int{http.StatusInternalServerError}
		if o.Security == nil || len(*o.Security) > 0 {
			wanted = append(wanted, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
				http.StatusServiceUnavailable)
		}
		if o.RequestBody != nil {
			wanted = append(wanted, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
				http.StatusUnsupportedMediaType)
			for media, content := range o.RequestBody.Value.Content {
				require.NotEmpty(t, content.Examples, media)
			}
		}
		if len(o.Parameters) > 0 && method == http.MethodGet {
			wanted = append(wanted, http.StatusBadRequest)
		}
		if regexp.MustCompile(`\{(lead|token|webhook)Id\}`).MatchString(path) {
			wanted = append(wanted, http.StatusNotFound)
		}
		for _, status := range wanted {
			require.NotNil(t, o.Responses.Status(status), status)
		}
		for name, response := range o.Responses.Map() {
			status, err := strconv.Atoi(name)
			require.NoError(t, err)
			require.Contains(t, slices.Collect(maps.Keys(response.Value.Headers)), "X-Request-Id", name)
			require.NotEmpty(t, *response.Value.Description, name)
			if status >= 400 && path != "/readyz" {
				require.NotEmpty(t, response.Value.Content["application/json"].Examples, name)
			}
			for media, content := range response.Value.Content {
				if status < 300 && strings.HasSuffix(media, "json") && path != "/openapi.json" {
					require.NotEmpty(t, content.Examples, "%s %s", name, media)
				}
			}
			if status < 300 && method != http.MethodGet && !appendsNothing[path] {
				require.Contains(t, response.Value.Headers, "X-Log-Position", name)
			}
		}
	})
}

// appendsNothing are the writes whose answers have no position.
var appendsNothing = map[string]bool{
	"/in/{intakeId}/visitors/{visitorId}/activity":   true, // the caller is not authenticated
	"/api/v1/crm/intakes/{intakeId}/preview":         true,
	"/webhooks/endpoints/{webhookId}/filter/preview": true,
	"/api/v1/crm/arrivals/resubmit":                  true, // its effects follow in the background
	"/in/{intakeId}":                                 true, // the answer is the same for known and unknown people
}

func TestDocument_WebhookSignatures(t *testing.T) {
	t.Parallel()
	for name, item := range load(t).Webhooks {
		var headers []string
		for _, p := range item.Post.Parameters {
			headers = append(headers, p.Value.Name)
		}
		require.Equal(t, []string{"webhook-id", "webhook-timestamp", "webhook-signature"}, headers, name)
		require.NotEmpty(t, item.Post.RequestBody.Value.Content["application/json"].Examples, name)
	}
}

// Some generators leave out a schema that only webhooks name, and then do not compile.
func TestDocument_OperationsNameEveryMessage(t *testing.T) {
	t.Parallel()
	document := load(t)
	message := document.Components.Schemas["Message"].Value
	for name, item := range document.Webhooks {
		body := item.Post.RequestBody.Value.Content["application/json"].Schema
		require.Equal(t, body.Ref, message.Discriminator.Mapping[name].Ref, name)
		require.True(t, slices.ContainsFunc(message.OneOf, func(s *openapi3.SchemaRef) bool { return s.Ref == body.Ref }), name)
	}
	require.Equal(t, "#/components/schemas/Message", document.Components.Schemas["FilterPreviewAnswer"].Value.
		Properties["data"].Value.Properties["sample"].Value.Items.Ref)
}

// A generated client can send one type.
func TestDocument_OneTypePerMember(t *testing.T) {
	t.Parallel()
	kinds := regexp.MustCompile(`"type":\s*\[([^\]]*)\]`).FindAllSubmatch(openapi.Document(""), -1)
	require.NotEmpty(t, kinds)
	for _, kind := range kinds {
		require.Regexp(t, `^\s*"\w+",\s*"null"\s*$`, string(kind[1]))
	}
	require.NotRegexp(t, `"enum":\s*\[[^\]]*""`, string(openapi.Document("")))
}

// Requests with other members are valid, so the answers that tests check do not show that a field is missing.
func TestDocument_TakesEveryField(t *testing.T) {
	t.Parallel()
	document := load(t)
	arrival := document.Components.Schemas["LeadArrival"].Value.Properties
	preview := document.Paths.Value("/api/v1/crm/intakes/{intakeId}/preview").Post.Responses.Status(200).
		Value.Content["application/json"].
		Schema.Value.Properties["data"].Value.Properties["lead"].Value.Properties
	for _, name := range lead.FieldNames() {
		require.Contains(t, arrival, name)
		require.Contains(t, preview, name)
	}
}
