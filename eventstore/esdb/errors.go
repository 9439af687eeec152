package esdb

import (
	"errors"
	"fmt"

	client "github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leadlog/leadlog/eventstore"
)

// code is what the library says an error is. Its FromError returns the opposite of what its boolean promises and does
// not look into wrapped errors.
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

// missing tells that the server knows no stream of that name. A gRPC NotFound is something else under the same code,
// such as a follower's answer that names no leader.
func missing(err error) bool {
	return is(err, client.ErrorCodeResourceNotFound) && grpcStatus(err) == nil
}

// wrongExpected tells a conflict. Its revisions stand in the text only, and so are read again by those who need them.
func wrongExpected(err error) bool { return is(err, client.ErrorCodeWrongExpectedVersion) }

// lost tells that a client is best given up: it closed itself, broke, or its node is out of reach. In the last case
// it would look for another node itself, but leaves the old connection open and calls waiting.
func lost(err error) bool {
	if s := grpcStatus(err); s != nil && s.Code() == codes.Unavailable {
		return true
	}
	return errors.Is(err, errLost) || is(err, client.ErrorCodeConnectionClosed)
}

// tooLarge makes a caller's mistake of the server's refusal of an append over its limit.
func tooLarge(err error) error {
	if s := grpcStatus(err); s != nil && s.Code() == codes.InvalidArgument {
		return fmt.Errorf("%w: %s", eventstore.ErrInvalid, s.Message())
	}
	return err
}

// passing reports whether another attempt may fare better. Whatever is not known to last may pass: a lost connection
// shows in many ways, io.EOF, a cancellation that nobody here asked for and unknown codes among them.
func passing(err error) bool {
	if eventstore.Conflict(err) != nil || errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, errClosed) ||
		errors.Is(err, errForeign) || errors.Is(err, errOld) {
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
