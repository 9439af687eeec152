package pgdev

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the first version that accepts the migrations: a SQL function there has a RETURN clause.
const oldestMajor = 14

// Binaries are the programs of one PostgreSQL installation.
type Binaries struct {
	Dir   string
	Major int
}

// NoBinariesError means that no usable PostgreSQL is installed. Its text has the commands that install one.
type NoBinariesError struct {
	// Major is the version that the existing cluster needs; 0 for any supported one.
	Major int
	// Found are the unusable installations.
	Found []Binaries
}

func (e *NoBinariesError) Error() string {
	var b strings.Builder
	if e.Major > 0 {
		fmt.Fprintf(&b, "the cluster was made by PostgreSQL %d, whose programs are not installed", e.Major)
	} else {
		fmt.Fprintf(&b, "PostgreSQL %d or later is not installed", oldestMajor)
	}
	for _, found := range e.Found {
		fmt.Fprintf(&b, " (found version %d in %s)", found.Major, found.Dir)
	}
	if e.Major > 0 {
		fmt.Fprintf(&b, "; install them: apt-get install postgresql-%d, or brew install postgresql@%d",
			e.Major, e.Major)
	} else {
		b.WriteString("; install it: make postgres, or apt-get install postgresql, or brew install postgresql@17")
	}
	return b.String()
}

// FindBinaries searches PATH, pg_config's directory, and those of the packages of Debian, Red Hat, Homebrew and
// Postgres.app. The error is a *NoBinariesError.
func FindBinaries() (Binaries, error) { return findBinaries(0) }

// findBinaries searches for a major version, because a cluster runs only under the version that created it; 0 is any.
func findBinaries(major int) (Binaries, error) {
	var unusable []Binaries
	for _, dir := range binaryDirs() {
		found, ok := binariesIn(dir)
		switch {
		case !ok:
		case found.Major >= oldestMajor && (major == 0 || found.Major == major):
			return found, nil
		default:
			unusable = append(unusable, found)
		}
	}
	return Binaries{}, &NoBinariesError{Major: major, Found: unusable}
}

func binaryDirs() []string {
	var dirs []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil { // a directory of links may lack some of the programs
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(path))
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/usr/local/pgsql/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		slices.SortFunc(matches, func(a, b string) int { return cmp.Compare(numberIn(b), numberIn(a)) })
		dirs = append(dirs, matches...)
	}
	return dirs
}

var (
	digits        = regexp.MustCompile(`\d+`)
	versionNumber = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)
)

func numberIn(path string) int {
	n, err := strconv.Atoi(digits.FindString(path))
	if err != nil {
		return 0
	}
	return n
}

func binariesIn(dir string) (Binaries, bool) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, false
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, false
	}
	match := versionNumber.FindSubmatch(out)
	if match == nil {
		return Binaries{}, false
	}
	major, err := strconv.Atoi(string(match[1]))
	return Binaries{Dir: dir, Major: major}, err == nil
}
