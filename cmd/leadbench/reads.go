package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leadlog/leadlog/eventstore"
	"github.com/leadlog/leadlog/httpapi"
)

// readsBenchmark measures the routes and pages that an owner, an analyst and the console open, of a large account and a
// small one in turn.
type readsBenchmark struct {
	settings `embed:""`
	Leads    int `default:"1000000" help:"Leads of the large account."`
	Small    int `default:"10000" help:"Leads of the small account."`
	Reads    int `default:"15" help:"Reads of each route and account."`
}

// readRoutes are the routes. An {id} is the id of a lead.
var readRoutes = []string{
	"/api/v1/crm/leads", "/api/v1/crm/leads?status=won", "/api/v1/crm/leads?search=person+77",
	"/api/v1/crm/leads?search=nobody+like+this", "/api/v1/crm/leads?phone=%2B919000000077", "/api/v1/crm/leads/{id}",
	"/api/v1/crm/leads/{id}/sources", "/api/v1/crm/leads/{id}/events", "/api/v1/crm/leads/{id}/activity",
	"/api/v1/crm/leads/refused", "/api/v1/crm/arrivals", "/api/v1/crm/events", "/api/v1/crm/sources/history",
	"/api/v1/crm/sources/report", "/api/v1/crm/touches", "/api/v1/crm/usage", "/api/v1/crm/tokens",
	"/api/v1/crm/audit/events", "/webhooks/endpoints", "/api/v1/crm/intakes", attributionPath,
	attributionPath + "?model=time_decay&by=campaign",
	"/console/", "/console/leads", "/console/leads?search=person+77", "/console/leads?status=won", "/console/leads/{id}",
	"/console/sources", "/console/sources/attribution", "/console/audit", "/console/tokens", "/console/webhooks",
	"/console/intakes",
}

const attributionPath = "/api/v1/crm/attribution"

// Run is leadbench reads.
func (b *readsBenchmark) Run(ctx context.Context) error {
	r, err := newRig(ctx, b.settings)
	if err != nil {
		return err
	}
	defer r.close()
	address, err := r.database(ctx, "log")
	if err != nil {
		return err
	}
	if err := writeAccounts(ctx, address, map[string]int{account: b.Leads, "small": b.Small}); err != nil {
		return err
	}
	s, err := r.serve(ctx, address)
	if err != nil {
		return err
	}
	defer func() { s.stop() }() // the process is started again
	if _, _, err := r.leadlog(ctx, s.env, "account", "set", "small", "--feature", "crm_api"); err != nil {
		return err
	}
	progress("waiting for the views")
	began := time.Now()
	if err := until(ctx, func() (bool, error) {
		time.Sleep(time.Second) // while views are behind, each answer of /metrics reads the log
		return s.caughtUp()
	}); err != nil {
		return err
	}
	views := time.Since(began)
	large, err := s.reader(ctx, account)
	if err != nil {
		return err
	}
	small, err := s.reader(ctx, "small")
	if err != nil {
		return err
	}
	progress("waiting for the conversions")
	began = time.Now()
	if err := until(ctx, func() (bool, error) {
		_, answer, err := large.get(ctx, attributionPath)
		if strings.Contains(string(answer), `"rebuilding":true`) || err != nil {
			time.Sleep(time.Second)
			return false, nil
		}
		return true, nil
	}); err != nil {
		return err
	}
	conversions := time.Since(began)
	progress("waiting for the statistics of the tables")
	if err := until(ctx, func() (bool, error) { return analyzed(ctx, address) }); err != nil {
		return err
	}
	t := newTable("route", "p50 with "+count(float64(b.Leads))+" leads", "with "+count(float64(b.Small)), "ratio", "aim")
	var most, mostAttribution float64
	for _, route := range readRoutes {
		var took, tookSmall []time.Duration
		for i := range b.Reads + 1 {
			for _, of := range []struct {
				*reader
				took *[]time.Duration
			}{{large, &took}, {small, &tookSmall}} {
				one, _, err := of.get(ctx, strings.ReplaceAll(route, "{id}", of.lead))
				if err != nil {
					return err
				}
				if i > 0 {
					*of.took = append(*of.took, one)
				}
			}
		}
		share, of, aim := ratio(took, tookSmall), &most, "3"
		if strings.Contains(route, "attribution") {
			of, aim = &mostAttribution, "10"
		}
		*of = max(*of, share)
		t.row(route, millis(median(took)), millis(median(tookSmall)), times(share), aim)
	}
	t.print()
	memory, err := s.memory()
	if err != nil {
		return err
	}
	var started []time.Duration
	var atRest []float64
	for range b.Rounds {
		s.stop()
		began = time.Now()
		if s.process, err = launch(r.program, s.env, "serve"); err != nil {
			return err
		}
		if err := s.ready(ctx, s.base+"/readyz"); err != nil {
			return err
		}
		started = append(started, time.Since(began))
		if err := eventstore.Sleep(ctx, 3*time.Second); err != nil {
			return err
		}
		resident, err := s.memory()
		if err != nil {
			return err
		}
		atRest = append(atRest, resident)
	}
	t = newSummary()
	t.row("reads of a large account, to those of a small one, p50: most of all routes; attribution",
		fmt.Sprintf("%s; %s, %s to %s leads", times(most), times(mostAttribution), count(float64(b.Leads)),
			count(float64(b.Small))), "3; 10")
	t.row("start of `leadlog serve` until it is ready",
		fmt.Sprintf("%s, %s leads", millis(median(started)), count(float64(b.Leads))), "1 s")
	t.row("memory at rest", mebibytes(median(atRest)), "64 MiB")
	t.row("memory while the views read the log", mebibytes(memory), "")
	t.row("the views read the log in", seconds(views), "")
	t.row("conversions are complete, after that", seconds(conversions), "")
	t.print()
	return nil
}

// analyzed reports whether PostgreSQL knows the tables of leads: until then it may read all of them for a page.
func analyzed(ctx context.Context, address string) (all bool, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT bool_and(last_analyze IS NOT NULL OR last_autoanalyze IS NOT NULL)
		FROM pg_stat_user_tables WHERE schemaname = 'views' AND relname IN ('lead', 'lead_search', 'touch')`).Scan(&all)
	return all, err
}

// writeAccounts writes a log with leads of several accounts. Personal data are not sealed. Three leads in twenty are
// won.
func writeAccounts(ctx context.Context, address string, leads map[string]int) error {
	store, err := openLog(ctx, address)
	if err != nil {
		return err
	}
	defer store.Close()
	for of, n := range leads {
		progress("writing %d leads of account %s", n, of)
		h := newHistory()
		h.account, h.won, h.random = of, 3, rand.New(rand.NewPCG(uint64(n), 1)) // ids of its own
		for len(h.leads) < n {
			var writes []eventstore.Write
			for h.append++; len(writes) < 1000; {
				writes = append(writes, h.arrival()...)
			}
			if _, err := store.Append(ctx, writes...); err != nil {
				return err
			}
		}
	}
	return nil
}

// reader reads as a user of an account who is signed in at the console too.
type reader struct {
	service *service
	client  http.Client
	jwt     string
	lead    string // id of a lead
}

func (s *service) reader(ctx context.Context, account string) (*reader, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	r := &reader{service: s, client: http.Client{Jar: jar, Timeout: time.Minute}}
	if r.jwt, err = httpapi.MintHS256([]byte(s.secret),
		httpapi.Minting{Account: account, Subject: "bench", TTL: 24 * time.Hour}, time.Now()); err != nil {
		return nil, err
	}
	response, err := r.client.PostForm(s.base+"/console/sign-in", url.Values{"jwt": {r.jwt}})
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	_, answer, err := r.get(ctx, "/api/v1/crm/leads?limit=1")
	if err != nil {
		return nil, err
	}
	var page struct{ Data []struct{ LeadID string } }
	if err := json.Unmarshal(answer, &page); err != nil || len(page.Data) == 0 {
		return nil, fmt.Errorf("no lead in %s: %w", answer, err)
	}
	r.lead = page.Data[0].LeadID
	return r, nil
}

// get reads a route, which has to answer with 200.
func (r *reader) get(ctx context.Context, route string) (took time.Duration, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.service.base+route, nil)
	if err != nil {
		return 0, nil, err
	}
	if !strings.HasPrefix(route, "/console") {
		request.Header.Set("Authorization", "Bearer "+r.jwt)
	}
	began := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil, err
	}
	took = time.Since(began)
	if response.StatusCode != http.StatusOK || response.Request.URL.Path != request.URL.Path {
		return 0, nil, fmt.Errorf("%s: %s at %s: %.500s", route, response.Status, response.Request.URL.Path, answer)
	}
	return took, answer, nil
}
