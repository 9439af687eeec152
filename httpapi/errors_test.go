package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/eventstore/event"
	"github.com/leadlog/leadlog/query"
)

func TestErrors_Answers(t *testing.T) {
	t.Parallel()
	refusal := &command.LeadRefused{
		Refusal:  &lead.Refusal{Fact: event.LeadRefused{Code: lead.CodeDuplicateEmail, LeadID: "L1"}},
		Position: 7,
	}
	for name, c := range map[string]struct {
		err    error
		body   string
		status int
		retry  time.Duration
	}{
		"fields": {field.Errors{{Field: "phone", Message: "is bad"}},
			`{"success":false,"message":"Validation failed","errors":[{"field":"phone","message":"is bad"}]}`, 400, 0},
		"cursor": {
			query.ErrCursor,
			`{"success":false,"message":"Validation failed","errors":[{"field":"cursor","message":"is not a cursor ` +
				`of this list"}]}`, 400, 0,
		},
		"scope": {scopeError("leads:read"), `{"success":false,"message":"Scope leads:read required"}`, 403, 0},
		"refused": {
			refusal,
			`{"success":false,"message":"This email already belongs to lead L1","code":"DUPLICATE_LEAD_EMAIL"}`, 409, 0,
		},
		"limit": {
			limitError{1500 * time.Millisecond}, `{"success":false,"message":"Rate limit exceeded"}`, 429,
			1500 * time.Millisecond,
		},
		"limit, soon": {
			limitError{time.Millisecond}, `{"success":false,"message":"Rate limit exceeded"}`, 429, time.Second,
		},
		"store": {
			eventstore.ErrUnavailable, `{"success":false,"message":"Service unavailable"}`, 503, 2 * time.Second,
		},
		"no record": {fmt.Errorf("%w: %w", command.ErrNotRecorded, eventstore.ErrUnavailable),
			`{"success":false,"message":"Service unavailable: exports and unmasked data are recorded on the log ` +
				`first, which cannot be written now","code":"NOT_RECORDED"}`, 503, 2 * time.Second},
		"contended": {eventstore.ErrContended, `{"success":false,"message":"Service unavailable"}`, 503, time.Second},
		"deadline": {
			context.DeadlineExceeded, `{"success":false,"message":"Service unavailable"}`, 503, 2 * time.Second,
		},
		"anything": {errors.New("password=hunter2"), `{"success":false,"message":"Internal server error"}`, 500, 0},
	} {
		f := describe(fmt.Errorf("somewhere: %w", c.err))
		encoded, err := encode(f.envelope)
		require.NoError(t, err)
		require.Equal(t, c.body, string(encoded), name)
		require.Equal(t, c.status, f.status, name)
		require.Equal(t, c.retry, f.retryAfter, name)
	}
	require.Equal(t, eventstore.Position(7), describe(refusal).position)
}

func TestErrors_EveryRowReached(t *testing.T) {
	t.Parallel()
	for _, row := range failures {
		f := describe(fmt.Errorf("wrapped: %w", row.is))
		require.Equal(t, row.status, f.status, row.is)
		require.Equal(t, []string{row.message, row.code}, []string{f.envelope.Message, f.envelope.Code}, row.is)
		require.Equal(t, row.status == http.StatusServiceUnavailable, f.retryAfter > 0, row.is)
	}
}

func TestAnswer_NextCursor(t *testing.T) {
	t.Parallel()
	for want, list := range map[string]query.List[string]{
		`{"success":true,"data":[],"nextCursor":null}`:   {},
		`{"success":true,"data":["x"],"nextCursor":"c"}`: {Items: []string{"x"}, NextCursor: "c"},
	} {
		a, err := listed(list, nil)
		require.NoError(t, err)
		encoded, err := encode(a.body)
		require.NoError(t, err)
		require.Equal(t, want, string(encoded))
	}
}
