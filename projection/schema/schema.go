// Package schema has the migrations of the tables in PostgreSQL: the views in the schema views, and the sealed secrets and the
// deliveries to webhook endpoints in schemas of their own. Projectors write them and queries read them; what both must agree on,
// such as names and the format of rows, is here too.
package schema

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leadlog/leadlog/eventstore/migration"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Views is the schema of the read models that are served.
const Views = "views"

// Deliveries is the schema of webhook deliveries.
const Deliveries = "delivery"

// DeliveryDays is how many days the record of deliveries is kept.
const DeliveryDays = 30

// CopyMarker begins the comment of a schema that holds a copy of views.
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
	Place           = "place"
)

var readModels = migration.Schema{Name: Views, Holds: "the read models", Files: migrationFiles}

// Migrate brings the schema up to date, creating it in an empty database. Processes that migrate at the same time
// wait for each other.
func Migrate(ctx context.Context, url string) error { return Unavailable(readModels.Up(ctx, url)) }

// Current returns migration.ErrOld or ErrNew when the database's schema is not of this program's version, and
// eventstore.ErrUnavailable when the database cannot be reached.
func Current(ctx context.Context, pool *pgxpool.Pool) error {
	return Unavailable(readModels.Current(ctx, pool))
}
