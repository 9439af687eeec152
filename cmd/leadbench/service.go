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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the one that everything is captured into.
const account = "bench"

// service is a running leadlog with an account, an API token and a JWT.
type service struct {
	*process
	base  string // http://127.0.0.1:…
	token string
	jwt   string
	env   []string // of its commands
}

// serve migrates a database, provisions it, and runs leadlog on it. Further settings are NAME=value; those of --setting count
// most. The rate limiter works on every capture, and lets them all through.
func (r *rig) serve(ctx context.Context, database string, more ...string) (*service, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	env := append([]string{
		"PATH=" + os.Getenv("PATH"), "LEADLOG_DATABASE_URL=" + database, "LEADLOG_ADDR=" + address,
		"LEADLOG_CLAIM_KEY=" + key(), "LEADLOG_SEAL_KEY=" + key(), "LEADLOG_TREE_KEY=" + key(), "LEADLOG_JWT_SECRET=" + key(),
		"LEADLOG_LOG_LEVEL=warn", "LEADLOG_RATE_LIMIT=1000000", "LEADLOG_RATE_BURST=1000000",
		"LEADLOG_WEBHOOK_ALLOW_PRIVATE=true",
	}, slices.Concat(more, r.setting)...)
	if _, err := r.leadlog(ctx, env, "migrate"); err != nil {
		return nil, err
	}
	if _, err := r.leadlog(ctx, env, "account", "set", account, "--feature", "crm_api"); err != nil {
		return nil, err
	}
	jwt, err := r.leadlog(ctx, env, "jwt", "--account", account, "--ttl", "24h")
	if err != nil {
		return nil, err
	}
	s := &service{base: "http://" + address, jwt: strings.TrimSpace(jwt), env: env}
	if s.process, err = launch(r.program, env, "serve"); err != nil {
		return nil, err
	}
	if err := s.provision(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// serveAnew is serve on an empty database.
func (r *rig) serveAnew(ctx context.Context, name string) (*service, error) {
	address, err := r.database(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.serve(ctx, address)
}

// provision waits until the service is ready and makes a token.
func (s *service) provision(ctx context.Context) error {
	if err := s.ready(ctx, s.base+"/readyz"); err != nil {
		return err
	}
	var created struct{ Data struct{ PlainToken string } }
	if err := s.call(ctx, "POST", "/api/v1/crm/tokens", `{"name":"bench","expiresInDays":1}`, &created); err != nil {
		return err
	}
	s.token = created.Data.PlainToken
	return nil
}

// call makes one request with the JWT and decodes the answer, which has to be 2xx.
func (s *service) call(ctx context.Context, method, path, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
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
		return fmt.Errorf("%s %s: %s %s", method, path, response.Status, answer)
	}
	return json.Unmarshal(answer, into)
}

// lag is how many positions the view that is furthest behind has still to read.
func (s *service) lag(ctx context.Context) (uint64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	var most uint64
	found := false
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "leadlog_projection_lag_positions{") {
			behind, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			found, most = true, max(most, uint64(behind))
		}
	}
	if !found {
		return 0, errors.New("/metrics says nothing of leadlog_projection_lag_positions")
	}
	return most, nil
}

// leadlog runs one command of the program to its end and returns what it wrote.
func (r *rig) leadlog(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.program, args...)
	var out, wrong bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &wrong
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("leadlog %s: %w: %s", strings.Join(args, " "), err, wrong.String())
	}
	return out.String(), nil
}

// process is a program under measurement.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of its end
}

func launch(program string, env []string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	return start(cmd)
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// wait returns when the process has ended, with the most resident memory it was seen to have, in MiB. What the system
// tells at the end is not it: on Linux that begins with what this process had when it started the other.
func (p *process) wait() (memory float64, err error) {
	for look := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-look.C:
			if seen, err := p.memory(); err == nil {
				memory = seen
			}
		case <-p.ended:
			look.Stop()
			return memory, p.err
		}
	}
}

// ready waits until an address answers with 200.
func (p *process) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		response, err := http.Get(url)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended", p.cmd.Path)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", url, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop asks the program to end, and makes it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// memory is the most resident memory the process has had, in MiB.
func (p *process) memory() (float64, error) {
	file, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(file)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("/proc does not tell the process's memory")
}

// processor is the processor time the process has used.
func (p *process) processor() (time.Duration, error) { return processorOf(p.cmd.Process.Pid) }

// processorOf is what a process has used, with those of its children that have ended.
func processorOf(pid int) (time.Duration, error) {
	fields, err := statOf(pid)
	if err != nil {
		return 0, err
	}
	return ticks(fields, 11, 12, 13, 14), nil
}

// statOf are the fields of /proc/PID/stat from the third on, so that the parent is 1 and the times are 11 to 14.
func statOf(pid int) ([]string, error) {
	file, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(file[bytes.LastIndexByte(file, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	return fields, nil
}

// ticks adds up fields in Linux's hundredths of a second.
func ticks(fields []string, which ...int) (total time.Duration) {
	for _, i := range which {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		total += time.Duration(n) * 10 * time.Millisecond
	}
	return total
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
