package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRelease_NextArrivalIsNewLead(t *testing.T) {
	t.Parallel()
	s := start(t)
	created := s.capture(`{"name":"Asha","phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`)
	path := leads + "/" + created.at("data", "leadId").(string)
	moved := s.capture(`{"phone":"9876543211","email":"asha@example.com","metadata":{"source":"website"}}`)
	require.Equal(t, "+919876543211", moved.at("data", "phone"), moved.raw)

	released := s.as(http.MethodPost, path+"/contacts/release", `{"phone":"98765 43210"}`).is(http.StatusOK)
	require.Equal(t, "+919876543211", released.at("data", "phone"), "an old number changes nothing of what shows")
	s.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`).is(http.StatusCreated)

	released = s.as(http.MethodPost, path+"/contacts/release", `{"phone":"+919876543211"}`).is(http.StatusOK)
	require.Equal(t, "", released.at("data", "phone"))
	require.Equal(t, "asha@example.com", released.at("data", "email"))
	for _, shown := range []reply{
		s.as(http.MethodGet, after(path, released), ""),
		s.as(http.MethodGet, path+"?asOf="+released.at("data", "updatedAt").(string), ""),
	} {
		require.Equal(t, http.StatusOK, shown.status, shown.raw)
		require.Equal(t, "", shown.at("data", "phone"))
	}
	require.Empty(t, s.as(http.MethodGet, after(leads+"?phone=%2B919876543211", released), "").at("data"))
	events := s.as(http.MethodGet, path+"/events", "").at("data").([]any)
	last := events[len(events)-1].(map[string]any)
	require.Equal(t, "lead.released", last["type"])
	require.Equal(t, "user:ann", last["actor"])

	only := s.as(http.MethodPost, path+"/contacts/release", `{"email":"Asha@Example.com"}`).is(http.StatusConflict)
	require.Equal(t, "LAST_CONTACT", only.at("code"))
	again := s.as(http.MethodPost, path+"/contacts/release", `{"phone":"9876543211"}`).is(http.StatusBadRequest)
	require.Equal(t, []string{"phone"}, again.fieldsNamed())
	require.Equal(t, []string{"body"}, s.as(http.MethodPost, path+"/contacts/release", `{}`).fieldsNamed())
}

// Whatever comes first, nobody is two leads and no lead is left without a contact.
func TestRelease_ConcurrentWithCaptures(t *testing.T) {
	t.Parallel()
	s := start(t)
	processes := []*service{s, serve(t, s.url)}
	created := s.capture(`{"phone":"9876543210","email":"asha@example.com","metadata":{"source":"website"}}`)
	path := leads + "/" + created.at("data", "leadId").(string) + "/contacts/release"
	var group sync.WaitGroup
	var mu sync.Mutex
	var releases, births int
	for i := range 24 {
		group.Go(func() {
			p := processes[i%2]
			if i%3 == 0 {
				r := p.as(http.MethodPost, path, []string{`{"phone":"9876543210"}`, `{"email":"asha@example.com"}`}[i/3%2])
				assert.Contains(t, []int{http.StatusOK, http.StatusBadRequest, http.StatusConflict}, r.status, r.raw)
				mu.Lock()
				defer mu.Unlock()
				if r.status == http.StatusOK {
					releases++
				}
				return
			}
			r := p.capture(fmt.Sprintf(`{"phone":"9876543210","n%d":1,"metadata":{"source":"website"}}`, i))
			assert.Contains(t, []int{http.StatusOK, http.StatusCreated}, r.status, r.raw)
			mu.Lock()
			defer mu.Unlock()
			if r.status == http.StatusCreated {
				births++
			}
		})
	}
	group.Wait()
	require.Equal(t, 1, releases, "the other was the last contact then, or gone")
	require.LessOrEqual(t, births, 1)
	next := s.capture(`{"phone":"9876543210","metadata":{"source":"website"}}`)
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, next.status)
	found := s.as(http.MethodGet, after(leads+"?phone=9876543210", next), "")
	require.Len(t, found.at("data"), 1, found.raw)
}
