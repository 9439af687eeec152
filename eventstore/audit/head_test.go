package audit_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/leadlog/leadlog/eventstore/audit"
)

func signer(t testing.TB, seed byte) *audit.Signer {
	t.Helper()
	s, err := audit.NewSigner(bytes.Repeat([]byte{seed}, 32))
	require.NoError(t, err)
	return s
}

func TestHead_RoundTrip(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 3)
	h, s := head(t, tree), signer(t, 1)
	text, err := s.SignHead(h)
	require.NoError(t, err)
	response, err := json.Marshal(map[string]any{"success": true, "data": map[string]any{"head": text, "size": 3}})
	require.NoError(t, err)
	for name, given := range map[string][]byte{"as text": []byte(text), "in a response": response} {
		for _, key := range []string{s.PublicKey(), ""} {
			opened, by, err := audit.OpenHead(given, key)
			require.NoError(t, err, name)
			require.Equal(t, h, opened)
			require.Equal(t, s.PublicKey(), by)
		}
	}
	require.True(t, strings.HasPrefix(text, "leadlog/acme\n3\n"), text)
}

func TestOpenHead_RejectsForgery(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 3)
	s := signer(t, 1)
	text, err := s.SignHead(head(t, tree))
	require.NoError(t, err)
	_, _, err = audit.OpenHead([]byte(text), signer(t, 2).PublicKey())
	require.ErrorIs(t, err, audit.ErrSignature)
	_, _, err = audit.OpenHead([]byte(text), "leadlog+0+x")
	require.ErrorIs(t, err, audit.ErrPublicKey)
	_, _, err = audit.OpenHead([]byte(strings.Replace(text, "acme", "acne", 1)), s.PublicKey())
	require.ErrorIs(t, err, audit.ErrSignature)
	for i := range len(text) {
		changed := []byte(text)
		changed[i] ^= 1
		_, _, err := audit.OpenHead(changed, s.PublicKey())
		require.Error(t, err, "byte %d", i)
	}
	for _, invalid := range []string{"", "{}", "x", `{"data":{}}`, "leadlog/acme\n1\n"} {
		_, _, err := audit.OpenHead([]byte(invalid), s.PublicKey())
		require.ErrorIs(t, err, audit.ErrHead, "%q", invalid)
	}
	_, _, err = audit.OpenHead([]byte(`{"data":{}}`), s.PublicKey())
	require.ErrorContains(t, err, "JSON without data.head")
	_, err = audit.NewSigner([]byte("short"))
	require.Error(t, err)
}

// The error of a checkpoint, as the log publishes it, was once that an empty public key is bad.
func TestOpenHead_NamesNoKey(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 3)
	checkpoint, err := note.Sign(&note.Note{Text: "log.example\n3\n" + head(t, tree).Root.String() + "\n"}, signer(t, 1))
	require.NoError(t, err)
	for _, text := range [][]byte{checkpoint, nil, []byte("x")} {
		_, _, err := audit.OpenHead(text, "")
		require.ErrorIs(t, err, audit.ErrHead)
		require.NotErrorIs(t, err, audit.ErrPublicKey)
	}
}

func TestOpenHead_OtherNote(t *testing.T) {
	t.Parallel()
	_, tree := exported(t, 3)
	s, root := signer(t, 1), head(t, tree).Root.String()
	for text, ok := range map[string]bool{
		"leadlog/acme\n3\n" + root + "\n": true, "leadlog/acme\n0\n" + root + "\n": true,
		"leadlog/acme\n": false, "leadlog/acme\n3\n": false, "other/acme\n3\n" + root + "\n": false,
		"leadlog/acme\nx\n" + root + "\n": false, "leadlog/acme\n-1\n" + root + "\n": false, "leadlog/acme\n3\nx\n": false,
	} {
		signed, err := note.Sign(&note.Note{Text: text}, s)
		require.NoError(t, err)
		_, _, err = audit.OpenHead(signed, s.PublicKey())
		if ok {
			require.NoError(t, err, "%q", text)
		} else {
			require.ErrorIs(t, err, audit.ErrHead, "%q", text)
		}
	}
}
