// Package schema has the migrations of the tables in PostgreSQL: the views in the schema views, and the sealed secrets
// and the deliveries to webhook endpoints in schemas of their own. It also has the names and row formats that
// projectors and queries share.
package schema

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Views is the schema of the live read models.
const Views = "views"

// Deliveries is the schema of webhook deliveries.
const Deliveries = "delivery"

// DeliveryDays is how many days delivery records are kept.
const DeliveryDays = 30

// CopyMarker is the prefix of the comment on a schema that holds a copy of views.
const CopyMarker = "leadlog copy "

// Names of projectors, which are the keys of their checkpoints.
const (
	Lead            = "lead"
	SourceDay       = "source_day"
	Touch           = "touch"
	Token           = "token"
	TokenEvent      = "token_event"
	Account         = "account"
	Endpoint        = "endpoint"
	Intake          = "intake"
	FanOut          = "fanout"
	VisitorActivity = "visitor_activity"
	Refused         = "refused"
	Arrival         = "arrival"
	Trail           = "trail"
	LogIndex        = "log_index"
)

var readModels = migration.Schema{Name: Views, Holds: "the read models", Files: migrationFiles}

// Migrate migrates the schema to the current version, and creates it in an empty database. Concurrent migrations wait
// for each other.
func Migrate(ctx context.Context, url string) error { return Unavailable(readModels.Up(ctx, url)) }

// Current returns migration.ErrOld or ErrNew when the database's schema is not of this program's version, and
// eventstore.ErrUnavailable when the database cannot be reached.
func Current(ctx context.Context, pool *pgxpool.Pool) error {
	return Unavailable(readModels.Current(ctx, pool))
}
