package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestAfterAStormOverTwoProcessesTheLogAndTheViewsAgree has many callers do, at once and to the same few people and
// tokens, what changes anything.
func TestAfterAStormOverTwoProcessesTheLogAndTheViewsAgree(t *testing.T) {
	t.Parallel()
	settings := production(t)
	jwt := provisioned(t, settings)
	_, one := serve(t, settings)
	_, other := serve(t, settings)
	var group errgroup.Group
	for worker := range 12 {
		base := []string{one, other}[worker%2]
		group.Go(func() error {
			s := storm{base: base, jwt: jwt, seed: worker}
			for n := range 25 {
				if err := s.blow(t, n); err != nil {
					return fmt.Errorf("worker %d, turn %d: %w", worker, n, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	agree := launch(t, settings, "verify").ends(t, 0)
	require.Contains(t, agree.out.String(), "the log and the views agree")
	require.NotZero(t, ask(t, settings, `SELECT count(*) FROM views.lead`))
}

// storm is one caller.
type storm struct {
	base, jwt  string
	seed       int
	lead, held string // a lead and a token of its own making
}

// blow does one thing. Whatever the others do meanwhile, no answer may be a failure of the service.
func (s *storm) blow(t *testing.T, n int) error {
	person := (s.seed*7 + n*5) % 17
	sources := []string{"website", "api", "whatsapp", "webhook", "facebook_ad"}
	capture := fmt.Sprintf(`{"phone":"98765432%02d","email":"p%d@example.com","metadata":{"source":"%s"}}`, person, (person+n%3)%17, sources[n%len(sources)])
	switch n % 6 {
	case 1:
		if s.held == "" {
			got, err := s.call(t, "POST", "/api/v1/crm/tokens", `{"name":"storm","expiresInDays":30}`)
			if err == nil && got.status == 201 {
				s.held = got.data()["tokenId"].(string)
			}
			return err
		}
		_, err := s.call(t, "POST", "/api/v1/crm/tokens/"+s.held+"/rotate", "")
		return err
	case 3:
		_, err := s.call(t, "PATCH", "/api/v1/crm/leads/"+s.lead, `{"status":"won","name":"Asha"}`)
		return err
	case 5:
		if s.held == "" || n%4 != 1 {
			break
		}
		_, err := s.call(t, "DELETE", "/api/v1/crm/tokens/"+s.held, "")
		s.held = ""
		return err
	}
	got, err := s.call(t, "POST", "/api/v1/crm/leads", capture)
	if id, ok := got.data()["leadId"].(string); err == nil && ok {
		s.lead = id
	}
	return err
}

func (s *storm) call(t *testing.T, method, path, body string) (answer, error) {
	got, err := call(t.Context(), method, s.base+path, s.jwt, body)
	if err == nil && got.status >= 500 {
		err = fmt.Errorf("%s %s answered %d: %v", method, path, got.status, got.body)
	}
	return got, err
}
