package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

// published is a public document.
type published struct {
	media, policy string // policy is the Content-Security-Policy, if it is another than that of all answers
	text          []byte
	tag           string
}

func publish(media, policy string, text []byte) published {
	sum := sha256.Sum256(text)
	return published{media, policy, text, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// isNamed reports whether the caller has it already, by its ETag. A proxy that compresses makes the tag weak, which is fine here.
func (p published) isNamed(header http.Header) bool {
	for _, line := range header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(line, ",") {
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == p.tag {
				return true
			}
		}
	}
	return false
}

// documents are the API's document and its page, made when they are first requested.
type documents struct{ document, page func() published }

func newDocuments(base string) documents {
	return documents{
		document: sync.OnceValue(func() published {
			return publish("application/json; charset=utf-8", "", openapi.Document(base))
		}),
		page: sync.OnceValue(func() published {
			page, policy := openapi.Page(base)
			return publish("text/html; charset=utf-8", policy, page)
		}),
	}
}

func (x *exchange) showDocument() (answer, error) { return x.show(x.documents.document()) }

func (x *exchange) showPage() (answer, error) { return x.show(x.documents.page()) }

// show answers with a document, or 304 when the caller has it already.
func (x *exchange) show(p published) (answer, error) {
	header := x.w.Header()
	header.Set("ETag", p.tag)
	header.Set("Cache-Control", "no-cache")
	if p.policy != "" {
		header.Set("Content-Security-Policy", p.policy)
	}
	return answer{stream: func() error {
		if p.isNamed(x.r.Header) {
			x.w.WriteHeader(http.StatusNotModified)
			return nil
		}
		header.Set("Content-Type", p.media)
		header.Set("Content-Length", strconv.Itoa(len(p.text)))
		_, _ = x.w.Write(p.text) // net/http handles a client that has disconnected
		return nil
	}}, nil
}
