package verify

import (
	"context"

	"github.com/leadlog/leadlog/projection"
)

// Only makes Run compare only the views of the projectors. Each comparison builds a copy of its tables, which takes
// most of the time.
func (v Verification) Only(projectors ...projection.Projector) Verification {
	v.projectors = projectors
	return v
}

// RunLog is Run without comparing views and deliveries.
func (v Verification) RunLog(ctx context.Context) ([]string, error) {
	_, findings, err := v.log(ctx, v.Progress)
	return findings, err
}

// RunDeliveries is the comparison of deliveries alone.
func (v Verification) RunDeliveries(ctx context.Context) ([]string, error) { return v.deliveries(ctx) }
