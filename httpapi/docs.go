package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/leadlog/leadlog/httpapi/openapi"
	"github.com/leadlog/leadlog/httpapi/pagescript"
)

// published is a public document. Its tag is weak, because both codings have the same tag.
type published struct {
	media, policy string // policy is the Content-Security-Policy, if it is another than that of all answers
	text          []byte
	packed        []byte // with gzip
	tag           string
}

func publish(media, policy string, text []byte) published {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, _ = writer.Write(text) // writing to a buffer does not fail
		err = writer.Close()
	}
	if err != nil {
		panic(err) // only an unknown level, which is a constant
	}
	sum := sha256.Sum256(text)
	tag := `W/"` + hex.EncodeToString(sum[:8]) + `"`
	return published{media: media, policy: policy, text: text, packed: packed.Bytes(), tag: tag}
}

// isNamed reports whether the caller has it already, by its ETag. A proxy that compresses makes the tag weak, which is
// fine here.
func (p published) isNamed(header http.Header) bool {
	for _, line := range header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" ||
				strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(p.tag, "W/") {
				return true
			}
		}
	}
	return false
}

// documents are the API's document, its page and the script of pages, made when they are first requested.
type documents struct{ document, page, script func() published }

func newDocuments(base string) documents {
	return documents{
		document: sync.OnceValue(func() published {
			return publish("application/json; charset=utf-8", "", openapi.Document(base))
		}),
		page: sync.OnceValue(func() published {
			page, policy := openapi.Page(base)
			return publish("text/html; charset=utf-8", policy, page)
		}),
		script: sync.OnceValue(func() published {
			return publish("text/javascript; charset=utf-8", "", pagescript.Text())
		}),
	}
}

func (ex *exchange) showDocument() (answer, error) { return ex.show(ex.documents.document()) }

func (ex *exchange) showPage() (answer, error) { return ex.show(ex.documents.page()) }

// showScript answers with leadlog.js, which pages of any origin may load.
func (ex *exchange) showScript() (answer, error) {
	header := ex.w.Header()
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	// for script elements with crossorigin
	header.Set("Access-Control-Allow-Origin", "*")
	return ex.showFor(ex.documents.script(), "public, max-age=3600, stale-while-revalidate=86400") // seconds
}

// show answers with a document, or 304 when the caller has it already.
func (ex *exchange) show(p published) (answer, error) { return ex.showFor(p, "no-cache") }

func (ex *exchange) showFor(p published, caching string) (answer, error) {
	header := ex.w.Header()
	header.Set("ETag", p.tag)
	header.Set("Cache-Control", caching)
	header.Set("Vary", "Accept-Encoding")
	if p.policy != "" {
		header.Set("Content-Security-Policy", p.policy)
	}
	return answer{stream: func() error {
		if p.isNamed(ex.r.Header) {
			ex.w.WriteHeader(http.StatusNotModified)
			return nil
		}
		text := p.text
		if strings.Contains(ex.r.Header.Get("Accept-Encoding"), "gzip") {
			header.Set("Content-Encoding", "gzip")
			text = p.packed
		}
		header.Set("Content-Type", p.media)
		header.Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = ex.w.Write(text) // net/http handles a client that has disconnected
		return nil
	}}, nil
}
