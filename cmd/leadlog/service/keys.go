package service

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/leadlog/leadlog/cmd/leadlog/cli"
)

// KeyDir is the directory of generated secrets that belong to the private PostgreSQL: one file each, 0600.
type KeyDir struct{ dir string }

// KeyDir returns the one of the data directory.
func (d Database) KeyDir() KeyDir { return KeyDir{filepath.Join(d.DataDir, "keys")} }

// Files of a KeyDir.
const (
	JWTSecretFile = "jwt_secret"
	claimKeyFile  = "claim_key"
	sealKeyFile   = "seal_key"
	treeKeyFile   = "tree_key"
	APITokenFile  = "demo_api_token"
)

// Get returns a secret, or "" when there is none.
func (k KeyDir) Get(name string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(k.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}

// Put stores a secret atomically, in place of an earlier one.
func (k KeyDir) Put(name, secret string) error {
	temporary, err := k.write(name, secret)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(k.dir, name)); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return k.sync()
}

// generated returns a secret of 32 random bytes in base64. It makes the secret at the first call, and returns the same
// ever after.
func (k KeyDir) generated(name string) (string, error) {
	if secret, err := k.Get(name); secret != "" || err != nil {
		return secret, err
	}
	fresh := make([]byte, 32)
	if _, err := rand.Read(fresh); err != nil {
		return "", err
	}
	temporary, err := k.write(name, base64.StdEncoding.EncodeToString(fresh))
	if err != nil {
		return "", err
	}
	defer os.Remove(temporary)
	// A link fails where a rename would replace: of two processes that start at once, one key wins.
	if err := os.Link(temporary, filepath.Join(k.dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := k.sync(); err != nil {
		return "", err
	}
	return k.Get(name)
}

// sync makes names in the directory durable: a key must not be lost when claims made with it are not.
func (k KeyDir) sync() error {
	dir, err := os.Open(k.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (k KeyDir) write(name, secret string) (temporary string, err error) {
	if err := k.makeDataDir(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(k.dir, "."+name+"-*") // 0600
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(file, secret)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// makeDataDir creates the data directory above the KeyDir, unless it exists. Whatever the umask is, the user that
// PostgreSQL runs as must be able to pass through it.
func (k KeyDir) makeDataDir() error {
	dir := filepath.Dir(k.dir)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711))
}

// Fill reads missing keys from the data directory. With generate, which dev sets, it creates those that do not exist
// there. Without generate it reads them only for the private PostgreSQL, so that no service runs with keys that were
// not configured.
func (s *Settings) Fill(generate bool) error {
	if s.DatabaseURL != "" && !generate {
		return nil
	}
	keys := s.KeyDir()
	from := keys.Get
	if generate {
		from = keys.generated
	}
	wanted := map[string]*string{claimKeyFile: &s.ClaimKey, sealKeyFile: &s.SealKey, treeKeyFile: &s.TreeKey}
	if s.JWTJWKSURL == "" {
		wanted[JWTSecretFile] = &s.JWTSecret
	}
	for name, value := range wanted {
		if *value != "" {
			continue
		}
		secret, err := from(name)
		if err != nil {
			return fmt.Errorf("key in the data directory: %w", err)
		}
		*value = secret
	}
	return nil
}

// orStored returns the key that a setting gives or, for the private PostgreSQL, the one in the data directory; "" when
// there is none.
func (d Database) orStored(given, name string) (string, error) {
	if given != "" || d.DatabaseURL != "" {
		return given, nil
	}
	stored, err := d.KeyDir().Get(name)
	if err != nil {
		return "", fmt.Errorf("key in the data directory: %w", err)
	}
	return stored, nil
}

// ReadClaimKey returns the key that a setting gives or, for the private PostgreSQL, the one in the data directory.
func (d Database) ReadClaimKey(check *cli.Checker, given string) ([]byte, error) {
	key, err := d.orStored(given, claimKeyFile)
	if err != nil {
		return nil, err
	}
	return parseKey(check, "LEADLOG_CLAIM_KEY", key), nil
}

// sealKeys returns the keys that seal and open data, the current one first; nil if there is none.
func (d SealedDatabase) sealKeys(check *cli.Checker) ([][]byte, error) {
	key, err := d.orStored(d.SealKey, sealKeyFile)
	if key == "" {
		return nil, err
	}
	return parseKeys(check, "LEADLOG_SEAL_KEY", key), nil
}

// Keys are the keys that a command needs to append to the log like the service: the key that names claims, and the seal
// keys.
type Keys struct {
	Claim []byte
	Seal  [][]byte
}

// Keys returns the keys of the service, and refuses those that are missing or malformed.
func (d SealedDatabase) Keys(claimKey string) (keys Keys, err error) {
	var check cli.Checker
	if keys.Claim, err = d.ReadClaimKey(&check, claimKey); err != nil {
		return keys, err
	}
	if keys.Seal, err = d.sealKeys(&check); err == nil && keys.Seal == nil {
		parseKey(&check, "LEADLOG_SEAL_KEY", "")
	}
	return keys, errors.Join(err, check.Err())
}

// TreeSeed returns the seed of the key that signs checkpoints: this one or, for the private PostgreSQL, the one in the
// data directory.
func (d Database) TreeSeed(key string) ([]byte, error) {
	key, err := d.orStored(key, treeKeyFile)
	if err != nil {
		return nil, err
	}
	var check cli.Checker
	seed := parseKey(&check, "LEADLOG_TREE_KEY", key)
	return seed, check.Err()
}
