package merkle_test

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/leadlog/leadlog/eventstore/merkle"
)

const logName = "leads.example.com/log"

var tree = tlog.Tree{N: 3, Hash: tlog.RecordHash([]byte("root"))}

func newSigner(t testing.TB, name string, seed byte) *merkle.Signer {
	t.Helper()
	s, err := merkle.NewSigner(name, bytes.Repeat([]byte{seed}, 32))
	require.NoError(t, err)
	return s
}

func signed(t testing.TB, s *merkle.Signer, account string) string {
	t.Helper()
	text, err := s.SignTree(account, tree)
	require.NoError(t, err)
	return text
}

func TestCheckpoint_RoundTrip(t *testing.T) {
	t.Parallel()
	s := newSigner(t, logName, 1)
	for account, origin := range map[string]string{"": logName, "acme": logName + "/accounts/acme/tokens"} {
		text := signed(t, s, account)
		require.True(t, strings.HasPrefix(text, origin+"\n3\n"+tree.Hash.String()+"\n\n— "+logName+" "), text)
		for _, trust := range []merkle.Trust{{PublicKey: s.PublicKey()}, {Seed: bytes.Repeat([]byte{1}, 32)}} {
			c, err := trust.Open([]byte(text))
			require.NoError(t, err)
			require.Equal(t, merkle.Checkpoint{
				Checkpoint: torchwood.Checkpoint{Origin: origin, Tree: tree}, Account: account,
				PublicKey: s.PublicKey(),
			}, c)
		}

		// torchwood, the library of other programs, accepts it, too.
		policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(origin), torchwood.SingleVerifierPolicy(s))
		_, _, err := torchwood.VerifyCheckpoint([]byte(text), policy)
		require.NoError(t, err)
	}
	_, err := merkle.NewSigner(logName, []byte("short"))
	require.Error(t, err)
	_, err = merkle.NewSigner("a b", bytes.Repeat([]byte{1}, 32))
	require.Error(t, err)
}

func TestTrust_RefusesForgery(t *testing.T) {
	t.Parallel()
	s := newSigner(t, logName, 1)
	trust := merkle.Trust{PublicKey: s.PublicKey()}
	for _, account := range []string{"", "acme"} {
		text := signed(t, s, account)
		for name, c := range map[string]struct {
			text  string
			trust merkle.Trust
			err   error
		}{
			"another key": {
				text, merkle.Trust{PublicKey: newSigner(t, logName, 2).PublicKey()}, merkle.ErrSignature,
			},
			"another seed": {text, merkle.Trust{Seed: bytes.Repeat([]byte{2}, 32)}, merkle.ErrSignature},
			"another log": {
				text, merkle.Trust{PublicKey: newSigner(t, "other.example", 1).PublicKey()}, merkle.ErrSignature,
			},
			"no key":              {text, merkle.Trust{}, merkle.ErrPublicKey},
			"a key of nothing":    {text, merkle.Trust{PublicKey: "leads+0+x"}, merkle.ErrPublicKey},
			"another size":        {strings.Replace(text, "\n3\n", "\n4\n", 1), trust, merkle.ErrSignature},
			"another origin":      {"x" + text, trust, merkle.ErrSignature},
			"a signature twice":   {text + text[strings.Index(text, "— "):], trust, merkle.ErrCheckpoint},
			"no signature":        {text[:strings.Index(text, "— ")], trust, merkle.ErrCheckpoint},
			"nothing":             {"", trust, merkle.ErrCheckpoint},
			"nothing, for a seed": {"", merkle.Trust{Seed: bytes.Repeat([]byte{1}, 32)}, merkle.ErrCheckpoint},
		} {
			_, err := c.trust.Open([]byte(c.text))
			require.ErrorIs(t, err, c.err, name)
		}
		for i := range len(text) {
			for _, bit := range []byte{1, 2, 4, 16, 32} {
				b := []byte(text)
				b[i] ^= bit
				_, err := trust.Open(b)
				require.Error(t, err, "bit %d of byte %d", bit, i)
			}
		}
	}
}

// The key has signed these, but they are no checkpoints of the log or of its accounts.
func TestTrust_RefusesOtherNotes(t *testing.T) {
	t.Parallel()
	s, root := newSigner(t, logName, 1), tree.Hash.String()
	for text, want := range map[string]error{
		logName + "\n3\n" + root + "\n":                      nil,
		logName + "/accounts/acme/tokens\n0\n" + root + "\n": nil,
		logName + "\n3\n" + root + "\nextension\n":           merkle.ErrCheckpoint,
		logName + "\n":                                              merkle.ErrCheckpoint,
		logName + "\n3\n":                                           merkle.ErrCheckpoint,
		logName + "\nx\n" + root + "\n":                             merkle.ErrCheckpoint,
		logName + "\n-1\n" + root + "\n":                            merkle.ErrCheckpoint,
		logName + "\n3\nx\n":                                        merkle.ErrCheckpoint,
		"other.example\n3\n" + root + "\n":                          merkle.ErrCheckpoint,
		logName + "/\n3\n" + root + "\n":                            merkle.ErrCheckpoint,
		logName + "/accounts/acme\n3\n" + root + "\n":               merkle.ErrCheckpoint,
		logName + "/accounts//tokens\n3\n" + root + "\n":            merkle.ErrCheckpoint,
		"x" + logName + "/accounts/acme/tokens\n3\n" + root + "\n":  merkle.ErrCheckpoint,
		logName + "/accounts/acme/tokens/x\n3\n" + root + "\n":      merkle.ErrCheckpoint,
		"other.example/log/accounts/acme/tokens\n3\n" + root + "\n": merkle.ErrCheckpoint,
	} {
		note, err := note.Sign(&note.Note{Text: text}, s)
		require.NoError(t, err)
		_, err = merkle.Trust{PublicKey: s.PublicKey()}.Open(note)
		require.ErrorIs(t, err, want, "%q", text)
	}
}

func FuzzTrust_Open(f *testing.F) {
	s := newSigner(f, logName, 1)
	trust := merkle.Trust{PublicKey: s.PublicKey()}
	texts := []string{signed(f, s, ""), signed(f, s, "acme")}
	for _, text := range texts {
		f.Add([]byte(text))
		f.Add([]byte(strings.Replace(text, "\n\n", "\nextension\n\n", 1)))
	}
	f.Fuzz(func(t *testing.T, given []byte) {
		c, err := trust.Open(given)
		if err != nil {
			return
		}
		text := signed(t, s, c.Account)
		require.Equal(t, tree, c.Tree)
		require.True(t, strings.HasPrefix(string(given), text[:strings.Index(text, "— ")]))
		require.Contains(t, string(given), text[strings.Index(text, "— "):], "others may have signed, too")
	})
}
