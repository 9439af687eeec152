package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"

	"github.com/go-chi/chi/v5"
)

//go:embed assets/*
var assetFiles embed.FS

// assets are the stylesheet, the script and the icon. Each is at a path that changes with it, and so may be cached
// forever.
type assets struct {
	base    string
	paths   map[string]string // by name
	content map[string][]byte // by the last part of the path
}

func newAssets(base string) assets {
	a := assets{base, map[string]string{}, map[string][]byte{}}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, entry := range entries {
		content, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		ending := path.Ext(entry.Name())
		name := strings.TrimSuffix(entry.Name(), ending) + "-" + hex.EncodeToString(sum[:6]) + ending
		a.paths[entry.Name()], a.content[name] = base+"/assets/"+name, content
	}
	return a
}

func (a assets) path(name string) string { return a.paths[name] }

var media = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "name")
	content, ok := c.assets.content[name]
	c.Gate.Note(r, c.Base+"/assets/{name}", "", nil)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", media[path.Ext(name)])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(content) // net/http handles a browser that has disconnected
}
