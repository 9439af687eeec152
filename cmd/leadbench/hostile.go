package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// hostileBenchmark measures captures by the API at a rate that leaves the machine idle, alone and while the intakes of
// another account are attacked from another process. Every attack is measured beside captures alone just before it.
type hostileBenchmark struct {
	settings    `embed:""`
	Connections int           `default:"16" help:"Of the captures."`
	Rate        float64       `default:"200" help:"Captures a second."`
	Duration    time.Duration `default:"5s" help:"Of each measurement."`
}

// attack is posts to an intake of the account under attack.
type attack struct {
	name, kind string
	rate       float64 // posts a second
	intake     string  // settings for creating it
	path       string

	alone, attacked []float64 // p99 in seconds
	posts           []float64 // that were answered
}

// costly is about as expensive as a mapping may be.
const costly = `string(body.a.exists(x, body.a.exists(y, x == y + 1)))`

// Run is leadbench hostile.
func (b *hostileBenchmark) Run(ctx context.Context) error {
	r, s, stop, err := newService(ctx, b.settings)
	if err != nil {
		return err
	}
	defer stop()
	closing := make(chan struct{})
	graph := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-closing }))
	defer graph.Close()
	defer close(closing)
	attacks := []*attack{
		{name: "10,000 junk posts to a form", kind: "junk", rate: 2000, intake: `{"name":"f","kind":"form"}`},
		{name: "bodies of 1 MiB to a form", kind: "bodies", rate: 20, intake: `{"name":"b","kind":"form"}`},
		{
			name: "posts to a costly mapping", kind: "bomb", rate: 20,
			intake: `{"name":"c","kind":"form","mapping":{"name":"` + costly + `"}}`,
		},
		{name: "Meta's posts, and its API hangs", kind: "meta", rate: 20,
			intake: `{"name":"m","kind":"meta_lead_ads","secret":"` + attackSecret + `","accessToken":"t",` +
				`"graphUrl":"` + graph.URL + `"}`},
		{
			name: "a program that posts nothing and computes for 4 ms", kind: "compute", rate: 20,
			intake: `{"name":"n","kind":"form"}`,
		},
	}
	if err := s.prepare(ctx, r, attacks); err != nil {
		return err
	}
	for round := range b.Rounds {
		progress("round %d of %d", round+1, b.Rounds)
		for _, a := range attacks {
			if err := b.measure(ctx, s, a); err != nil {
				return err
			}
		}
	}
	t := newTable("beside the captures", "answered", "p99 alone", "p99 beside it", "to alone", "aim")
	for _, a := range attacks {
		t.row(a.name, count(median(a.posts)), inMillis(a.alone), inMillis(a.attacked),
			times(ratio(a.attacked, a.alone)), "1.5")
	}
	t.print()
	return nil
}

func inMillis(figures []float64) string {
	return millis(time.Duration(median(figures) * float64(time.Second)))
}

// prepare makes an account with the default limits, and its intakes.
func (s *service) prepare(ctx context.Context, r *rig, attacks []*attack) error {
	const id = "attacked"
	if _, _, err := r.leadlog(ctx, s.env, "account", "set", id, "--feature", "crm_api", "--rate-limit", "10",
		"--rate-burst", "100", "--storage-per-day", "0"); err != nil {
		return err
	}
	jwt, _, err := r.leadlog(ctx, s.env, "jwt", "--account", id, "--ttl", "24h")
	if err != nil {
		return err
	}
	owner := *s
	owner.jwt = strings.TrimSpace(jwt)
	for _, a := range attacks {
		var created struct{ Data struct{ URL string } }
		if err := owner.call(ctx, "POST", "/api/v1/crm/intakes", a.intake, &created); err != nil {
			return err
		}
		a.path = created.Data.URL
	}
	return nil
}

// measure measures captures alone, and then beside an attack.
func (b *hostileBenchmark) measure(ctx context.Context, s *service, a *attack) error {
	p99 := func() (float64, error) {
		l, err := post(ctx, s.base, s.captures(), b.Connections, b.Duration, b.Rate, newcomers())
		if err != nil {
			return 0, err
		}
		return l.quantile(0.99).Seconds(), s.catchUp(ctx)
	}
	alone, err := p99()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	attacking := exec.CommandContext(ctx, self, "attack", a.kind, "--base", s.base, "--path", a.path,
		"--rate", fmt.Sprint(a.rate), "--duration", b.Duration.String())
	attacking.Stderr = os.Stderr
	attacking.Cancel = func() error { return attacking.Process.Signal(syscall.SIGTERM) }
	var answered strings.Builder
	attacking.Stdout = &answered
	if err := attacking.Start(); err != nil {
		return err
	}
	attacked, err := p99()
	if failed := attacking.Wait(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	posts, err := strconv.ParseFloat(strings.TrimSpace(answered.String()), 64)
	if err != nil {
		return fmt.Errorf("attack %s: %w", a.kind, err)
	}
	a.alone, a.attacked, a.posts = append(a.alone, alone), append(a.attacked, attacked), append(a.posts, posts)
	return nil
}

// attacker posts to an intake, whatever the answers are, and prints how many posts were answered.
type attacker struct {
	Kind     string        `arg:""`
	Base     string        `required:""`
	Path     string        `required:""`
	Rate     float64       `required:""`
	Duration time.Duration `required:""`
}

const attackSecret = "a-secret-of-the-benchmark"

// Run is leadbench attack.
func (a *attacker) Run(ctx context.Context) error {
	to := target{path: a.Path}
	var next func() (headers string, body []byte)
	switch a.Kind {
	case "junk":
		to.media = "application/x-www-form-urlencoded"
		next = func() (string, []byte) {
			n := rand.Uint64()
			if n%2 == 0 {
				return "", fmt.Appendf(nil, "name=x%d&message=buy+now+%d", n, n)
			}
			return "", fmt.Appendf(nil, "name=x%d&email=junk%d@example.com&message=buy+now", n, n)
		}
	case "compute": // the effect of processor time alone on the captures
	case "bodies":
		large := []byte(`{"email":"junk@example.com","x":[` + strings.Repeat(`[],`, 1<<20/3-20) + `1]}`)
		next = func() (string, []byte) { return "", large }
	case "bomb":
		list := []byte(`{"email":"junk@example.com","a":[` + strings.Repeat(`1,`, 100_000) + `1]}`)
		next = func() (string, []byte) { return "", list }
	case "meta":
		next = func() (string, []byte) {
			changes := make([]string, 10)
			for i := range changes {
				changes[i] = fmt.Sprintf(`{"field":"leadgen","value":{"leadgen_id":%d}}`, rand.Uint64N(1<<60))
			}
			announced := []byte(`{"entry":[{"changes":[` + strings.Join(changes, ",") + `]}]}`)
			mac := hmac.New(sha256.New, []byte(attackSecret))
			mac.Write(announced)
			return "X-Hub-Signature-256: sha256=" + hex.EncodeToString(mac.Sum(nil)) + "\r\n", announced
		}
	default:
		return fmt.Errorf("no attack is called %s", a.Kind)
	}
	var answered atomic.Uint64
	workers := make([]func(context.Context) error, 64)
	for i := range workers {
		if a.Kind == "compute" {
			workers[i] = func(context.Context) error { compute(4 * time.Millisecond); return nil }
			continue
		}
		var w *wire
		workers[i] = func(context.Context) (err error) {
			if w == nil {
				if w, err = dial(a.Base, to); err != nil {
					return err
				}
			}
			var body []byte
			w.extra, body = next()
			if _, err := w.send(body); err != nil { // the service may close a connection
				w.conn.Close()
				w = nil
				return nil
			}
			answered.Add(1)
			return nil
		}
	}
	_, err := drive(ctx, a.Duration, a.Rate, workers)
	fmt.Println(answered.Load())
	return err
}

// compute keeps a processor busy.
func compute(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
	}
}
