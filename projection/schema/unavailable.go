package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leadlog/leadlog/eventstore"
)

// Unavailable marks an error of the database with eventstore.ErrUnavailable when the database cannot be reached, is
// overloaded, too slow or failing. Other errors, such as those of an invalid statement or a cancelled context, are
// returned unchanged.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) || !isUnavailable(err) {
		return err
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
}

func isUnavailable(err error) bool {
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return !errors.Is(err, context.Canceled) // for any error with which the server refused the connection
	}
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		switch class(answer.Code) {
		// Connection exception, transaction rollback, insufficient resources, operator intervention, system error.
		case "08", "40", "53", "57", "58":
			return true
		}
		return answer.Code == "25006" // read-only: a standby, before it is promoted
	}
	if errors.Is(err, context.Canceled) {
		return false
	}
	var malformed *jsontext.SyntacticError
	if errors.As(err, &malformed) { // the message may be that of a truncated connection
		return false
	}
	var network net.Error
	return errors.As(err, &network) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

func class(code string) string {
	if len(code) < 2 {
		return ""
	}
	return code[:2]
}

// Missing reports whether an error says that a table or its schema does not exist.
func Missing(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (answer.Code == "42P01" || answer.Code == "3F000")
}
