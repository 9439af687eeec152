package transparency_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/leadlog/leadlog/eventstore/merkle"
	"github.com/leadlog/leadlog/projection/projectiontest"
)

// litewitness builds torchwood's witness once, with the program that registers a log with it.
var litewitness = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "litewitness-*"); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "filippo.io/torchwood/cmd/litewitness")
	register := exec.Command("go", "build", "-o", filepath.Join(dir, "addlog"), ".")
	for _, command := range []*exec.Cmd{build, register} {
		command.Dir, command.Env = filepath.Join("testdata", "litewitness"),
			append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := command.CombinedOutput(); err != nil {
			return "", &exec.Error{Name: string(out), Err: err}
		}
	}
	return dir, nil
})

// stockWitness runs a witness that knows one log until the test ends.
func stockWitness(t *testing.T, name, origin, key string) merkle.Witness {
	t.Helper()
	programs, err := litewitness()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "w") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	out, err := exec.Command(filepath.Join(programs, "addlog"), filepath.Join(dir, "db"), origin, key).CombinedOutput()
	require.NoError(t, err, string(out))

	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte(name[:1]), ed25519.SeedSize))
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	agentOf(t, filepath.Join(dir, "agent"), private)
	address := freeAddress(t)
	running := exec.Command(filepath.Join(programs, "litewitness"), "-name", name, "-db", filepath.Join(dir, "db"),
		"-ssh-agent", filepath.Join(dir, "agent"), "-key", ssh.FingerprintSHA256(signer.PublicKey()),
		"-listen", address)
	var said bytes.Buffer
	running.Stderr = &said
	require.NoError(t, running.Start())
	t.Cleanup(func() {
		_ = running.Process.Kill()
		_ = running.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + address + "/")
		if err == nil {
			answer.Body.Close()
		}
		return err == nil
	}, projectiontest.Soon, 10*time.Millisecond)
	w, err := merkle.ParseWitness(cosignerOf(t, name).Verifier().String() + "=http://" + address + "/")
	require.NoError(t, err)
	require.False(t, strings.HasSuffix(w.URL, "/"))
	return w
}

// agentOf starts an ssh-agent with one key.
func agentOf(t *testing.T, socket string, key ed25519.PrivateKey) {
	t.Helper()
	ring := agent.NewKeyring()
	require.NoError(t, ring.Add(agent.AddedKey{PrivateKey: key}))
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }()
		}
	}()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func cosignerOf(t *testing.T, name string) *torchwood.CosignatureSigner {
	t.Helper()
	signer, err := torchwood.NewCosignatureSigner(name,
		ed25519.NewKeyFromSeed(bytes.Repeat([]byte(name[:1]), ed25519.SeedSize)))
	require.NoError(t, err)
	return signer
}
