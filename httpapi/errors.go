package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/arrival"
	"github.com/leadlog/leadlog/command/field"
	"github.com/leadlog/leadlog/command/intake"
	"github.com/leadlog/leadlog/command/lead"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/command/webhook"
	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/query"
	"github.com/leadlog/leadlog/query/logtree"
)

var (
	errUnknownRoute = errors.New("no such route")
	errWrongMethod  = errors.New("no such method on this route")
	errTooLarge     = errors.New("request body too large")
	errCoding       = errors.New("request body is encoded")
	errMediaType    = errors.New("request body is not JSON")
	errOrigin       = errors.New("origin not listed")
	errArrivalLarge = errors.New("post too large for an intake")
	errViewLarge    = errors.New("page view too large")
	errSlowBody     = errors.New("request body did not arrive in time")

	errLinesType     = errors.New("request body is not JSON lines")
	errBatchTooLarge = errors.New("request body too large for a batch")
	errTooManyLines  = errors.New("too many lines for a batch")

	errNoToken   = errors.New("no such token")
	errNoAccount = errors.New("no such account")

	errNoTokenEvent = errors.New("no token event at this position")

	errNeedsJWT = errors.New("an API token where a JWT is required")
)

// strayPathError is errUnknownRoute for a path with a slash at its end or twice in a row. Its text has no path, which
// may have personal data: it is logged.
type strayPathError struct{ path, meant string }

func (strayPathError) Error() string { return errUnknownRoute.Error() }

// message names the path to the caller, and the path of a route that was meant.
func (e strayPathError) message() string {
	message := "Not found: " + e.path + " has an extra slash"
	if e.meant != "" {
		message += "; try " + e.meant
	}
	return message
}

// scopeError reports the scope that a JWT lacks.
type scopeError string

func (e scopeError) Error() string { return "Scope " + string(e) + " required" }

// limitError reports an exceeded rate limit.
type limitError struct{ retryAfter time.Duration }

func (limitError) Error() string { return "rate limit exceeded" }

// storageError reports that the account's storage for a day is used up.
type storageError struct{ retryAfter time.Duration }

func (storageError) Error() string { return "storage for the day used up" }

// Retry-After of answers with status 503.
const (
	retryUnavailable = 2 * time.Second
	retryBehind      = time.Second
)

// failures maps errors to answers; the first match counts. describe maps the errors whose answers have data of their
// own. Any other error is answered with a 500 that does not show it.
var failures = []struct {
	is         error
	status     int
	message    string
	code       string
	retryAfter time.Duration
}{
	{errUnknownRoute, http.StatusNotFound, "Not found", "", 0},
	{errWrongMethod, http.StatusMethodNotAllowed, "Method not allowed", "", 0},
	{errNeedsJWT, http.StatusUnauthorized, "Missing or invalid token: this route needs a JWT, not an API token", "", 0},
	{command.ErrUnauthorized, http.StatusUnauthorized, "Missing or invalid token", "", 0},
	{intake.ErrProof, http.StatusUnauthorized, "Missing or invalid proof", "", 0},
	{errOrigin, http.StatusForbidden, "This origin may not post here", "", 0},
	{intake.ErrHandshake, http.StatusBadRequest, "Not a handshake of this intake", "", 0},
	{intake.ErrVerifyToken, http.StatusForbidden, "hub.verify_token is wrong", "", 0},
	{command.ErrNotProvisioned, http.StatusForbidden, "This account is not provisioned: an administrator does it by " +
		"leadlog account set or PUT /api/v1/admin/accounts/{accountId}", "", 0},
	{command.ErrFeatureDisabled, http.StatusForbidden, "Feature crm_api is not enabled for this account", "", 0},
	{command.ErrLeadsHidden, http.StatusForbidden, scopeError("leads:read").Error(), "", 0},
	{errCoding, http.StatusUnsupportedMediaType, "Content-Encoding is not supported", "", 0},
	{errMediaType, http.StatusUnsupportedMediaType, "Content-Type must be application/json in UTF-8", "", 0},
	{errTooLarge, http.StatusRequestEntityTooLarge, "Request body must be at most 2 MiB", "", 0},
	{intake.ErrElements, http.StatusRequestEntityTooLarge, "A post may have at most 1,000 arrivals", "", 0},
	{errArrivalLarge, http.StatusRequestEntityTooLarge, "Request body must be at most 1 MiB", "", 0},
	{errViewLarge, http.StatusRequestEntityTooLarge, "Request body must be at most 64 KiB", "", 0},
	{
		command.ErrArrivalTooLarge, http.StatusRequestEntityTooLarge,
		"The lead that the post maps to, or the list of its errors, is too large for the log: map fewer fields", "", 0,
	},
	{errSlowBody, http.StatusRequestTimeout, "Request body did not arrive in time", "", 0},
	{errLinesType, http.StatusUnsupportedMediaType, "Content-Type must be application/x-ndjson in UTF-8", "", 0},
	{errBatchTooLarge, http.StatusRequestEntityTooLarge, "A batch must be at most 32 MiB", "", 0},
	{errTooManyLines, http.StatusRequestEntityTooLarge, "A batch must be at most 10,000 lines", "", 0},

	{
		command.ErrErased, http.StatusGone, "The lead that this " + idempotencyHeader + " was used for is erased",
		"LEAD_ERASED", 0,
	},
	{logtree.ErrErased, http.StatusGone, "The person is erased: nothing of the event can be shown", "LEAD_ERASED", 0},
	{
		command.ErrKeyReused, http.StatusConflict, "This " + idempotencyHeader + " was used for another request body",
		"IDEMPOTENCY_KEY_REUSED", 0,
	},
	{token.ErrNotFound, http.StatusNotFound, "Token not found or already deleted", "", 0},
	{token.ErrLimit, http.StatusConflict, "An account may hold at most 5 active tokens", "TOKEN_LIMIT_REACHED", 0},
	{webhook.ErrNotFound, http.StatusNotFound, "Webhook endpoint not found", "", 0},
	{
		webhook.ErrReplayRunning, http.StatusConflict, "A replay of this webhook endpoint is already running",
		"REPLAY_RUNNING", 0,
	},
	{webhook.ErrDisabled, http.StatusConflict, "Webhook endpoint is disabled: enable it first", "WEBHOOK_DISABLED", 0},
	{
		webhook.ErrLimit, http.StatusConflict, "An account may have at most 50 webhook endpoints",
		"WEBHOOK_LIMIT_REACHED", 0,
	},
	{intake.ErrNotFound, http.StatusNotFound, "Intake not found", "", 0},
	{intake.ErrLimit, http.StatusConflict, "An account may have at most 50 intakes", "INTAKE_LIMIT_REACHED", 0},
	{intake.ErrNoSecrets, http.StatusServiceUnavailable, unavailable, "", retryUnavailable},
	{lead.ErrLastContact, http.StatusConflict, "This is the only phone or email of the lead", "LAST_CONTACT", 0},
	{arrival.ErrNotFound, http.StatusNotFound, "Arrival not found", "", 0},
	{arrival.ErrDiscarded, http.StatusConflict, "The arrival was discarded", "ARRIVAL_DISCARDED", 0},
	{
		arrival.ErrExpired, http.StatusConflict, "The content of the arrival has expired and is deleted",
		"ARRIVAL_EXPIRED", 0,
	},
	{
		arrival.ErrPending, http.StatusConflict, "The arrival has not been fetched from its provider yet",
		"ARRIVAL_PENDING", 0,
	},
	{lead.ErrNotFound, http.StatusNotFound, "Lead not found", "", 0},
	{command.ErrNoVisitor, http.StatusNotFound, "Visitor not found", "", 0},
	{errNoDelivery, http.StatusNotFound, "Delivery not found", "", 0},
	{errNoToken, http.StatusNotFound, "Token not found", "", 0},
	{errNoTokenEvent, http.StatusNotFound, "No token event at this position", "", 0},
	{errNoEvent, http.StatusNotFound, "Event not found", "", 0},
	{errNotErased, http.StatusNotFound, "No erased lead with this id", "", 0},
	{
		errUnfinished, http.StatusNotFound, "The erasure is not finished: repeat the DELETE of the lead",
		"ERASURE_UNFINISHED", 0,
	},
	{logtree.ErrNotCovered, http.StatusNotFound, "No checkpoint covers the event yet", "NOT_COVERED", 0},
	{errNoAccount, http.StatusNotFound, "Account not found", "", 0},
	{query.ErrNotFound, http.StatusNotFound, "Not found", "", 0},
	{logtree.ErrNoTile, http.StatusNotFound, "Tile not found", "", 0},
	{
		query.ErrOtherLog, http.StatusGone, "The cursor belongs to another log: start again without one",
		"CURSOR_OF_ANOTHER_LOG", 0,
	},

	{
		logtree.ErrNoCheckpoint, http.StatusServiceUnavailable, "No checkpoint has its cosignatures yet", "",
		retryUnavailable,
	},
	{errNoKeys, http.StatusServiceUnavailable, unavailable, "", retryUnavailable},
	{errOverloaded, http.StatusServiceUnavailable, unavailable, "", retryBehind},
	{query.ErrBehind, http.StatusServiceUnavailable, unavailable, "", retryBehind},
	{eventstore.ErrContended, http.StatusServiceUnavailable, unavailable, "", retryBehind},
	{
		command.ErrNotRecorded, http.StatusServiceUnavailable,
		unavailable + ": exports and unmasked data are recorded on the log first, which cannot be written now",
		"NOT_RECORDED", retryUnavailable,
	},
	{eventstore.ErrUnavailable, http.StatusServiceUnavailable, unavailable, "", retryUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, unavailable, "", retryUnavailable},
}

const unavailable = "Service unavailable"

// failure is the answer to an error.
type failure struct {
	status     int
	envelope   envelope
	position   eventstore.Position
	retryAfter time.Duration
}

// describe returns the answer to an error.
func describe(err error) failure {
	var (
		wrong   field.Errors
		kept    *command.Quarantined
		refused *command.LeadRefused
		gone    *lead.JoinedError
		scope   scopeError
		limit   limitError
		storage storageError
		size    *query.TreeSizeError
		stray   strayPathError
	)
	switch {
	case errors.As(err, &kept):
		return failure{
			status: http.StatusBadRequest, position: kept.Position,
			envelope: envelope{Message: "Validation failed", Errors: kept.Errors, ArrivalID: kept.ArrivalID},
		}
	case errors.As(err, &wrong):
		return failure{status: http.StatusBadRequest, envelope: envelope{Message: "Validation failed", Errors: wrong}}
	case errors.Is(err, query.ErrCursor):
		return describe(field.Errors{{Field: "cursor", Message: "is not a cursor of this list"}})
	case errors.As(err, &size):
		return describe(field.Errors{{Field: size.Param, Message: size.Wants}})
	case errors.As(err, &refused):
		return failure{
			status: http.StatusConflict, position: refused.Position,
			envelope: envelope{Message: refused.Error(), Code: refused.Fact.Code},
		}
	case errors.As(err, &gone):
		return failure{status: http.StatusConflict, envelope: envelope{Message: gone.Error(), Code: "LEAD_JOINED"}}
	case errors.As(err, &stray):
		return failure{status: http.StatusNotFound, envelope: envelope{Message: stray.message()}}
	case errors.As(err, &scope):
		return failure{status: http.StatusForbidden, envelope: envelope{Message: scope.Error()}}
	case errors.As(err, &limit):
		return failure{
			status: http.StatusTooManyRequests, envelope: envelope{Message: "Rate limit exceeded"},
			retryAfter: max(limit.retryAfter, time.Second),
		}
	case errors.As(err, &storage):
		return failure{
			status:     http.StatusTooManyRequests,
			envelope:   envelope{Message: "The account's storagePerDay is used up", Code: "STORAGE_LIMIT"},
			retryAfter: max(storage.retryAfter, time.Second),
		}
	}
	for _, f := range failures {
		if errors.Is(err, f.is) {
			return failure{
				status: f.status, envelope: envelope{Message: f.message, Code: f.code}, retryAfter: f.retryAfter,
			}
		}
	}
	return failure{status: http.StatusInternalServerError, envelope: envelope{Message: "Internal server error"}}
}

// fail answers with an error. Internal details only go to the log.
func (ex *exchange) fail(err error) {
	ex.record.err = err
	f := describe(err)
	f.envelope.DryRun = ex.dryRun
	header := ex.w.Header()
	switch f.status {
	case http.StatusUnauthorized:
		scheme := "Bearer"
		if ex.intake != nil {
			scheme = intake.Authenticate(ex.intake.State.Settings)
		}
		if scheme != "" {
			header.Set("WWW-Authenticate", scheme)
		}
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		header.Set("Connection", "close") // the rest of the body is not read
	}
	if errors.Is(err, errOverloaded) {
		header.Set("Connection", "close") // the body is not read, and another process may answer the next request
	}
	ex.wrote(f.position)
	if f.retryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(wholeSeconds(f.retryAfter), 10))
	}
	if ex.html &&
		ex.page(f.status, formPage{Title: "Not sent", Text: f.envelope.Message, Errors: f.envelope.Errors}) == nil {
		return
	}
	encoded, err := encode(f.envelope)
	if err != nil { // cannot happen: an envelope of an error only has strings
		encoded = []byte(`{"success":false}`)
	}
	writeJSON(ex.w, f.status, encoded)
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}
