package esdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	recordErrors "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leadlog/leadlog/eventstore"
)

// code returns the library's code of an error. The library's FromError is not used: its boolean is inverted, and it
// does not unwrap.
func code(err error) (client.ErrorCode, bool) {
	var known *client.Error
	if errors.As(err, &known) {
		return known.Code(), true
	}
	return client.ErrorCodeUnknown, false
}

func is(err error, want client.ErrorCode) bool {
	got, known := code(err)
	return known && got == want
}

// grpcStatus returns the gRPC status in an error's chain, or nil.
func grpcStatus(err error) *status.Status {
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		return carrier.GRPCStatus()
	}
	return nil
}

// missing reports whether the server has no stream of that name. A gRPC NotFound has the same code but another meaning:
// a follower sends it when it does not know the leader.
func missing(err error) bool {
	return is(err, client.ErrorCodeResourceNotFound) && grpcStatus(err) == nil
}

// wrongExpected reports whether an error is a conflict. The revisions are only in its text, so callers that need them
// read them again.
func wrongExpected(err error) bool { return is(err, client.ErrorCodeWrongExpectedVersion) }

// connectionLost reports whether a client should be replaced: it closed itself, panicked, or cannot reach its node. In
// the last case the client would discover another node itself, but leave the old connection open and calls waiting.
func connectionLost(err error) bool {
	if s := grpcStatus(err); s != nil && s.Code() == codes.Unavailable {
		return true
	}
	return leaderIn(err) != "" || errors.Is(err, errLost) || is(err, client.ErrorCodeConnectionClosed)
}

// invalid reports whether AppendRecords has refused the call itself.
func invalid(err error) bool {
	s := grpcStatus(err)
	if s == nil {
		return false
	}
	for _, d := range s.Details() {
		if _, large := d.(*recordErrors.AppendTransactionSizeExceededErrorDetails); large {
			return true
		}
	}
	return s.Code() == codes.InvalidArgument
}

// tooLarge maps the server's error for an append over its limit to ErrInvalid.
func tooLarge(err error) error {
	if s := grpcStatus(err); s != nil && s.Code() == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", eventstore.ErrInvalid, s.Message())
	}
	return err
}

// invalidPosition maps the server's error for a read from a position at which no record begins to ErrUnknownPosition.
func invalidPosition(err error) error {
	if s := grpcStatus(err); s != nil && s.Code() == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", eventstore.ErrUnknownPosition, s.Message())
	}
	return err
}

// ofAll maps an error of reading $all. A user outside of $admins may read it only if the stream's metadata allow it.
func ofAll(err error) error {
	if is(err, client.ErrorCodeAccessDenied) {
		return fmt.Errorf("the user may not read $all, which its $acl must allow: %w", err)
	}
	return invalidPosition(err)
}

// transient reports whether a retry may succeed. Every error that is not known to be permanent counts: a lost
// connection has many forms, such as io.EOF, a cancellation by the library, or an unknown code.
func transient(err error) bool {
	if eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) ||
		errors.Is(err, eventstore.ErrUnknownPosition) || errors.Is(err, errClosed) ||
		errors.Is(err, errForeign) || errors.Is(err, errOld) || errors.Is(err, errRefused) || wrongExpected(err) {
		return false
	}
	switch c, _ := code(err); c {
	case client.ErrorCodeUnsupportedFeature, client.ErrorCodeUnauthenticated, client.ErrorCodeAccessDenied,
		client.ErrorCodeStreamDeleted, client.ErrorCodeParsing:
		return false
	}
	if s := grpcStatus(err); s != nil {
		switch s.Code() {
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented,
			codes.OutOfRange:
			return false
		case codes.FailedPrecondition:
			return leaderIn(err) != ""
		}
	}
	return !invalid(err)
}

// retryTransient retries until an attempt succeeds or fails permanently, or the timeout has passed. No attempt is cut
// off before: the server would work for nothing, and for the next attempt too.
func (s *Store) retryTransient(ctx context.Context, attempt func(context.Context) error) error {
	return s.attempts(ctx, s.timeout, attempt)
}

// attempts is retryTransient with another timeout for each attempt.
func (s *Store) attempts(ctx context.Context, limit time.Duration, attempt func(context.Context) error) error {
	for retry := s.retrying(); ; {
		err := once(ctx, limit, attempt)
		if err == nil {
			return nil
		}
		if err := retry.pause(ctx, err); err != nil {
			return err
		}
	}
}

func once(ctx context.Context, limit time.Duration, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return attempt(ctx)
}

// retry paces attempts after transient errors until a timeout.
type retry struct {
	until   time.Time
	timeout time.Duration
	backoff eventstore.Backoff
}

const shortestBackoff, longestBackoff = 5 * time.Millisecond, 500 * time.Millisecond

func (s *Store) retrying() *retry {
	r := &retry{timeout: s.timeout, backoff: eventstore.Backoff{Shortest: shortestBackoff, Longest: longestBackoff}}
	r.reset()
	return r
}

// reset restarts the timeout after a success.
func (r *retry) reset() {
	r.until = time.Now().Add(r.timeout)
	r.backoff.Reset()
}

// pause waits for the backoff. It returns the error to report if there should be no retry.
func (r *retry) pause(ctx context.Context, failure error) error {
	pause := r.backoff.Next()
	if ctx.Err() != nil || !transient(failure) || time.Now().Add(pause).After(r.until) ||
		eventstore.Sleep(ctx, pause) != nil {
		return outcome(ctx, failure)
	}
	return nil
}

// outcome returns the error for the caller. Conflicts and invalid input are returned unchanged. Other errors wrap
// ErrUnavailable, and the context's error if the context is done. The cause of the caller's context is not wrapped: it
// may claim that nothing was written.
func outcome(ctx context.Context, err error) error {
	if err == nil || eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) ||
		errors.Is(err, eventstore.ErrUnknownPosition) ||
		errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, errForeign) || errors.Is(err, errOld) ||
		errors.Is(err, errRefused) || wrongExpected(err) {
		return err
	}
	if ended := ctx.Err(); ended != nil {
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errClosed):
			err = errClosed
		case !errors.Is(cause, ended) && errors.Is(err, cause):
			err = ended
		case !errors.Is(err, ended):
			err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
}
