package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leadlog/leadlog/eventstore"
)

// account is the account of all captures.
const account = "bench"

// service is a running leadlog with an account, an API token and a JWT.
type service struct {
	*process
	base  string // http://127.0.0.1:…
	token string
	jwt   string
	env   []string // of the program
	// secret signs JWTs
	secret   string
	database string // its name
}

// newService runs leadlog on a database of its own in a new rig. Stop ends both.
func newService(ctx context.Context, of settings) (r *rig, s *service, stop func(), err error) {
	if r, err = newRig(ctx, of); err != nil {
		return nil, nil, nil, err
	}
	address, err := r.database(ctx, "log")
	if err == nil {
		s, err = r.serve(ctx, address)
	}
	if err != nil {
		r.close()
		return nil, nil, nil, err
	}
	return r, s, func() { s.stop(); r.close() }, nil
}

// serve migrates a database, provisions it, and runs leadlog on it. The rate limiter checks every capture, with a limit
// that is not reached.
func (r *rig) serve(ctx context.Context, database string) (*service, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	secret := key()
	env := append([]string{
		"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + database, "LEADLOG_ADDR=" + address,
		"LEADLOG_CLAIM_KEY=" + key(), "LEADLOG_SEAL_KEY=" + key(), "LEADLOG_TREE_KEY=" + key(),
		"LEADLOG_JWT_SECRET=" + secret, "LEADLOG_LOG_LEVEL=warn", "LEADLOG_RATE_LIMIT=1000000",
		"LEADLOG_RATE_BURST=1000000",
		"LEADLOG_WEBHOOK_ALLOW_PRIVATE=true",
	}, r.setting...)
	if _, _, err := r.leadlog(ctx, env, "migrate"); err != nil {
		return nil, err
	}
	if _, _, err := r.leadlog(ctx, env, "account", "set", account, "--feature", "crm_api",
		"--storage-per-day", "0"); err != nil {
		return nil, err
	}
	jwt, _, err := r.leadlog(ctx, env, "jwt", "--account", account, "--ttl", "24h")
	if err != nil {
		return nil, err
	}
	parsed, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	s := &service{base: "http://" + address, jwt: strings.TrimSpace(jwt), env: env, secret: secret,
		database: strings.TrimPrefix(parsed.Path, "/")}
	if s.process, err = launch(r.program, env, "serve"); err != nil {
		return nil, err
	}
	if err := s.provision(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// provision waits until the service is ready and makes a token.
func (s *service) provision(ctx context.Context) (err error) {
	if err = s.ready(ctx, s.base+"/readyz"); err == nil {
		s.token, err = s.createToken(ctx)
	}
	return err
}

func (s *service) createToken(ctx context.Context) (string, error) {
	var created struct{ Data struct{ PlainToken string } }
	err := s.call(ctx, "POST", "/api/v1/crm/tokens", `{"name":"bench","expiresInDays":1}`, &created)
	return created.Data.PlainToken, err
}

// call makes one request with the JWT and decodes the answer, which has to be 2xx.
func (s *service) call(ctx context.Context, method, route, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, s.base+route, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.jwt)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s %s", method, route, response.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// catchUp waits until every view has read the whole log.
func (s *service) catchUp(ctx context.Context) error {
	return until(ctx, s.caughtUp)
}

// until polls a condition.
func until(ctx context.Context, condition func() (bool, error)) error {
	for {
		if met, err := condition(); met || err != nil {
			return err
		}
		if err := eventstore.Sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

var viewLag = regexp.MustCompile(`(?m)^leadlog_projection_lag_positions\{.*\} (\S+)$`)

// caughtUp reports whether every view has read the whole log.
func (s *service) caughtUp() (bool, error) {
	response, err := http.Get(s.base + "/metrics")
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	lags := viewLag.FindAllSubmatch(metrics, -1)
	if len(lags) == 0 {
		return false, errors.New("no leadlog_projection_lag_positions in /metrics")
	}
	return !slices.ContainsFunc(lags, func(lag [][]byte) bool { return string(lag[1]) != "0" }), nil
}

// leadlog runs one command of the program to its end and returns its output and processor time.
func (r *rig) leadlog(
	ctx context.Context, env []string, args ...string,
) (output string, used time.Duration, err error) {
	cmd := exec.CommandContext(ctx, r.program, args...)
	var out, errors bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &errors
	if err := cmd.Run(); err != nil {
		return "", 0, fmt.Errorf("leadlog %s: %w: %s", strings.Join(args, " "), err, errors.String())
	}
	return out.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// process is a program under measurement.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func launch(program string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = env, os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // stop kills it
		close(p.ended)
	}()
	return p, nil
}

// ready waits until an address answers with 200.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, func() (bool, error) {
		select {
		case <-p.ended:
			return false, fmt.Errorf("%s ended", p.cmd.Path)
		default:
		}
		response, err := http.Get(url)
		if err != nil {
			return false, nil // not listening yet
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
}

// stop ends the program, after 30 seconds by force.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

var mostResident = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// memory is the peak resident memory of the process, in MiB.
func (p *process) memory() (float64, error) {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		return 0, err
	}
	found := mostResident.FindSubmatch(status)
	if found == nil {
		return 0, errors.New("no VmHWM in /proc/PID/status")
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	return kib / 1024, err
}

// stat is /proc/PID/stat of a process: its parent, and its processor time with and without that of its children that
// have ended.
func stat(pid int) (parent int, own, withChildren time.Duration, err error) {
	file, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, 0, err
	}
	fields := strings.Fields(string(file[bytes.LastIndexByte(file, ')')+1:])) // from the third on
	if len(fields) < 15 {
		return 0, 0, 0, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	ticks := func(field int) time.Duration { // of a hundredth of a second
		n, _ := strconv.Atoi(fields[field])
		return time.Duration(n) * 10 * time.Millisecond
	}
	parent, _ = strconv.Atoi(fields[1])
	own = ticks(11) + ticks(12)
	return parent, own, own + ticks(13) + ticks(14), nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func key() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}
