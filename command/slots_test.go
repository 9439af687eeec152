package command_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/command"
	"github.com/leadlog/leadlog/command/token"
	"github.com/leadlog/leadlog/eventstore"
)

// barrierStore blocks reads of claims until missing readers have arrived.
type barrierStore struct {
	eventstore.Store
	missing atomic.Int64
	all     chan struct{}
}

func (s *barrierStore) Read(
	ctx context.Context, stream string, from eventstore.Revision,
) iter.Seq2[eventstore.Recorded, error] {
	if strings.HasPrefix(stream, "claim-") {
		if s.missing.Add(-1) == 0 {
			close(s.all)
		}
		select {
		case <-s.all:
		case <-ctx.Done():
		}
	}
	return s.Store.Read(ctx, stream, from)
}

// Creations of an account's tokens are serialized. Each once read ten streams sequentially, so on a busy machine the
// last of twelve creations timed out with 503.
func TestCreateToken_ReadsSlotsConcurrently(t *testing.T) {
	t.Parallel()
	on := inMemory()
	one := start(t, on)
	one.provision(t)
	create := func(p process, name string) error {
		_, err := p.CreateToken(t.Context(), command.CreateToken{Caller: owner, Name: name, ExpiresInDays: 1})
		return err
	}
	for n := range token.MaxPerAccount {
		require.NoError(t, create(one, fmt.Sprint(n)))
	}
	store := &barrierStore{all: make(chan struct{})}
	store.missing.Store(token.MaxPerAccount)
	p := startOn(t, on, func(below eventstore.Store) eventstore.Store {
		store.Store = below
		return store
	})
	require.ErrorIs(t, create(p, "one too many"), token.ErrLimit)
}
