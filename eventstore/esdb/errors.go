package esdb

import (
	"errors"
	"fmt"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leadlog/leadlog/eventstore"
)

// code returns the library's code of an error. The library's FromError returns the opposite of what its boolean promises, and
// does not unwrap errors.
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

// grpcStatus is the answer of the transport in an error's chain, if the error comes from there.
func grpcStatus(err error) *status.Status {
	var carrier interface{ GRPCStatus() *status.Status }
	if errors.As(err, &carrier) {
		return carrier.GRPCStatus()
	}
	return nil
}

// missing reports whether the server has no stream of that name. A gRPC NotFound has the same code but another meaning, such as a
// follower's answer that names no leader.
func missing(err error) bool {
	return is(err, client.ErrorCodeResourceNotFound) && grpcStatus(err) == nil
}

// wrongExpected reports whether an error is a conflict. The revisions are in its text only, so callers that need them read them
// again.
func wrongExpected(err error) bool { return is(err, client.ErrorCodeWrongExpectedVersion) }

// lost reports whether a client should be replaced: it closed itself, broke, or cannot reach its node. In the last case it would
// look for another node itself, but it would leave the old connection open and calls waiting.
func lost(err error) bool {
	if s := grpcStatus(err); s != nil && s.Code() == codes.Unavailable {
		return true
	}
	return errors.Is(err, errLost) || is(err, client.ErrorCodeConnectionClosed)
}

// tooLarge turns the server's refusal of an append over its limit into ErrInvalid.
func tooLarge(err error) error {
	if s := grpcStatus(err); s != nil && s.Code() == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", eventstore.ErrInvalid, s.Message())
	}
	return err
}

// invalidPosition turns the server's refusal to read from a place where no record begins into ErrUnknownPosition.
func invalidPosition(err error) error {
	if s := grpcStatus(err); s != nil && s.Code() == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", eventstore.ErrUnknownPosition, s.Message())
	}
	return err
}

// ofAll completes an error of reading $all, which a user outside of $admins may do only if the metadata of $all says so.
func ofAll(err error) error {
	if is(err, client.ErrorCodeAccessDenied) {
		return fmt.Errorf("the user may not read $all, which its $acl must allow: %w", err)
	}
	return invalidPosition(err)
}

// passing reports whether another attempt may succeed. Every error that is not known to be permanent counts: a lost connection shows
// in many ways, such as io.EOF, a cancellation that nobody here asked for, or an unknown code.
func passing(err error) bool {
	if eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, eventstore.ErrUnknownPosition) || errors.Is(err, errClosed) ||
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
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange,
			codes.ResourceExhausted, codes.FailedPrecondition:
			return false
		}
	}
	return true
}
