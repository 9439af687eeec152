package schema

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore/migration"
)

// AnswerTime is the timeout of a statement of a bound connection. All statements of the service are much faster.
const AnswerTime = 30 * time.Second

const cachedStatements = 64 // per connection

// Session sets parameters of a connection that otherwise depend on the server and the role. Connecting has a timeout.
// TCP keepalives let the server detect a lost client within two minutes instead of two hours, and then release its
// locks. Long transactions, such as those of a replay or a verification, have no timeout.
func Session(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	migration.SetSession(config)
	config.RuntimeParams["tcp_keepalives_idle"] = "20"
	config.RuntimeParams["tcp_keepalives_interval"] = "10"
	config.RuntimeParams["statement_timeout"] = "0"
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	// The driver reserves memory for its statement cache, by default 512 statements in each connection.
	config.StatementCacheCapacity = min(config.StatementCacheCapacity, cachedStatements)
	config.DescriptionCacheCapacity = min(config.DescriptionCacheCapacity, cachedStatements)
}

// Bound is Session for a connection with short statements. A statement fails after AnswerTime; without it, a statement
// would wait forever for a server that has vanished.
func Bound(config *pgx.ConnConfig) {
	Session(config)
	BoundBy(config, AnswerTime)
}

// BoundBy sets the timeout of a connection's statements.
func BoundBy(config *pgx.ConnConfig, most time.Duration) { config.Tracer = limit(most) }

// Within returns the context for a statement that is sent without pgx, to which the timeout of Bound does not apply.
func Within(ctx context.Context, conn *pgx.Conn) (context.Context, context.CancelFunc) {
	if l, bound := conn.Config().Tracer.(limit); bound {
		return context.WithTimeout(ctx, time.Duration(l))
	}
	return context.WithCancel(ctx)
}

// limit is the timeout of statements: the driver runs them under the context that a tracer returns.
type limit time.Duration

var (
	_ pgx.QueryTracer    = limit(0)
	_ pgx.BatchTracer    = limit(0)
	_ pgx.CopyFromTracer = limit(0)
)

type cancelKey struct{}

func (l limit) begin(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(l))
	return context.WithValue(ctx, cancelKey{}, cancel)
}

func (limit) end(ctx context.Context) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

func (l limit) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return l.begin(ctx)
}

func (l limit) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { l.end(ctx) }

func (l limit) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return l.begin(ctx)
}

func (limit) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (l limit) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { l.end(ctx) }

func (l limit) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return l.begin(ctx)
}

func (l limit) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromEndData) {
	l.end(ctx)
}
