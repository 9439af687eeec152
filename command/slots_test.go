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

// abreast is a store that lets claims be read when so many readers have come.
type abreast struct {
	eventstore.Store
	missing atomic.Int64
	all     chan struct{}
}

func (s *abreast) Read(ctx context.Context, stream string, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
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

// Creators of an account's tokens wait in line. On a busy machine the last of a dozen waited for longer than a decision may
// take, while each before it read ten streams one after the other, and was answered 503.
func TestCreateToken_ReadsSlotsTogether(t *testing.T) {
	t.Parallel()
	url := database(t)
	one := start(t, url)
	one.provision(t)
	create := func(p process, name string) error {
		_, err := p.CreateToken(t.Context(), command.CreateToken{Caller: owner, Name: name, ExpiresInDays: 1})
		return err
	}
	for n := range token.MaxPerAccount {
		require.NoError(t, create(one, fmt.Sprint(n)))
	}
	store := &abreast{all: make(chan struct{})}
	store.missing.Store(token.MaxPerAccount)
	p := startOn(t, url, func(below eventstore.Store) eventstore.Store {
		store.Store = below
		return store
	})
	require.ErrorIs(t, create(p, "one too many"), token.ErrLimit)
}
