package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Head is the root of an account's tree at a size.
type Head struct {
	Account string
	Size    int64
	Root    tlog.Hash
}

var (
	// ErrHead means that a text is not a tree head.
	ErrHead = errors.New("not a tree head of leadlog")
	// ErrSignature means that a tree head is not signed by the expected key.
	ErrSignature = errors.New("the tree head is not signed by this key")
	// ErrPublicKey means that a text is not a public key.
	ErrPublicKey = errors.New("not a public key of leadlog, such as leadlog+1a2b3c4d+AUx…")
)

const (
	keyName      = "leadlog"
	originPrefix = "leadlog/" // followed by the account
	keyPrefix    = "key "     // followed by the public key
)

// Signer signs tree heads.
type Signer struct {
	note.Verifier
	public  string
	private ed25519.PrivateKey
}

// NewSigner returns a signer of accounts' tree heads with the key of an Ed25519 seed, 32 bytes.
func NewSigner(seed []byte) (*Signer, error) { return NewNamedSigner(keyName, seed) }

// NewNamedSigner returns a signer with the same key under another name, such as that of a log.
func NewNamedSigner(name string, seed []byte) (*Signer, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("seed of %d bytes, must be %d", len(seed), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public, err := note.NewEd25519VerifierKey(name, private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	return &Signer{verifier, public, private}, err
}

// PublicKey returns the key that verifies heads, in the form of sumdb/note: a name, the key's hash and the key.
func (s *Signer) PublicKey() string { return s.public }

// Sign implements note.Signer.
func (s *Signer) Sign(text []byte) ([]byte, error) { return ed25519.Sign(s.private, text), nil }

// SignHead writes a head as a signed note. The same head gives the same text.
//
//	leadlog/acme
//	7
//	y0BsKtTUYxLTFCJqXe4fTVPEcfsq0jgzQQCLIaFzs1E=
//	key leadlog+1a2b3c4d+AUx…
//
//	— leadlog 1a2b3c4d…
func (s *Signer) SignHead(h Head) (string, error) {
	signed, err := note.Sign(&note.Note{
		Text: fmt.Sprintf("%s%s\n%d\n%s\n%s%s\n", originPrefix, h.Account, h.Size, h.Root, keyPrefix, s.public),
	}, s)
	return string(signed), err
}

// OpenHead parses a signed head, or the JSON response that contains one, and verifies its signature. Without a public key it uses the one
// that the head names: the head is then intact, but the caller must decide whether to trust the returned key.
func OpenHead(text []byte, publicKey string) (h Head, signedBy string, err error) {
	if text, err = unwrapped(text); err != nil {
		return h, "", err
	}
	if publicKey == "" {
		for line := range strings.Lines(string(text)) {
			if named, ok := strings.CutPrefix(line, keyPrefix); ok {
				publicKey = strings.TrimSuffix(named, "\n")
				break
			}
		}
		if publicKey == "" {
			return h, "", fmt.Errorf("%w, which names its key: a checkpoint or a receipt is not one", ErrHead)
		}
	}
	if publicKey, err = headKey(publicKey); err != nil {
		return h, "", fmt.Errorf("%w: %w", ErrPublicKey, err)
	}
	verifier, err := note.NewVerifier(publicKey)
	if err != nil {
		return h, "", fmt.Errorf("%w: %w", ErrPublicKey, err)
	}
	opened, err := note.Open(text, note.VerifierList(verifier))
	var unverified *note.UnverifiedNoteError
	var wrong *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified), errors.As(err, &wrong):
		return h, "", fmt.Errorf("%w: %s", ErrSignature, publicKey)
	case err != nil:
		return h, "", fmt.Errorf("%w: %w", ErrHead, err)
	}
	for _, signature := range opened.Sigs { // its last character has unused bits, which must be zero
		if _, err := base64.StdEncoding.Strict().DecodeString(signature.Base64); err != nil {
			return h, "", fmt.Errorf("%w: %s", ErrSignature, publicKey)
		}
	}
	h, err = parseHead(opened.Text)
	return h, publicKey, err
}

// headKey returns a public key under the name that signs heads. The checkpoints of the log are signed with the same key under the log's
// name.
func headKey(publicKey string) (string, error) {
	if _, err := note.NewVerifier(publicKey); err != nil {
		return "", err
	}
	parts := strings.SplitN(publicKey, "+", 3) // name, hash, and base64 of the algorithm and the key
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return "", err
	}
	return note.NewEd25519VerifierKey(keyName, key[1:])
}

// unwrapped extracts the head from a JSON response.
func unwrapped(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(bytes.TrimLeft(text, " \r\n\t"), []byte("{")) {
		return text, nil
	}
	var answer struct {
		Data struct {
			Head string `json:"head"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Data.Head == "" {
		return nil, fmt.Errorf("%w: JSON without data.head", ErrHead)
	}
	return []byte(answer.Data.Head), nil
}

func parseHead(text string) (h Head, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 {
		return h, ErrHead
	}
	account, ok := strings.CutPrefix(lines[0], originPrefix)
	if !ok {
		return h, fmt.Errorf("%w: it begins with %q", ErrHead, lines[0])
	}
	h.Account = account
	if h.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || h.Size < 0 {
		return h, fmt.Errorf("%w: its size is %q", ErrHead, lines[1])
	}
	if h.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return h, fmt.Errorf("%w: %w", ErrHead, err)
	}
	return h, nil
}
