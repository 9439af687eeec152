package esdbtest

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// line is a record of the journal in a file of Save: JSON lines, in the order of the journal.
type line struct {
	ID       uuid.UUID `json:"id"`
	Stream   string    `json:"stream"`
	Type     string    `json:"type"`
	JSON     bool      `json:"json"`
	Data     []byte    `json:"data"`
	Metadata []byte    `json:"metadata"`
	Position uint64    `json:"position"`
	End      uint64    `json:"end"`
	Created  time.Time `json:"created"`
}

// Save writes the log to a file that StartFrom reads.
func (s *Server) Save(to io.Writer) error {
	for _, r := range s.log.look(-1).all {
		saved := line{r.id, r.stream, r.kind, r.json, r.data, r.metadata, r.position, r.end, r.created}
		if err := json.MarshalWrite(to, saved); err != nil {
			return fmt.Errorf("save record at %d: %w", r.position, err)
		}
		if _, err := io.WriteString(to, "\n"); err != nil {
			return fmt.Errorf("save record at %d: %w", r.position, err)
		}
	}
	return nil
}

// StartFrom is Start with the log of a file of Save. Like a server after a restart, it remembers no ids.
func StartFrom(t testing.TB, saved io.Reader) *Server {
	t.Helper()
	j := newJournal()
	j.all, j.streams, j.end = nil, map[string][]*record{}, 0
	clear(j.ids)
	for from := jsontext.NewDecoder(saved); ; {
		var l line
		err := json.UnmarshalDecode(from, &l)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("saved log: %v", err)
		}
		r := &record{
			id: l.ID, stream: l.Stream, kind: l.Type, json: l.JSON, data: l.Data, metadata: l.Metadata,
			revision: int64(len(j.streams[l.Stream])), position: l.Position, end: l.End, created: l.Created,
		}
		j.all, j.streams[l.Stream], j.end = append(j.all, r), append(j.streams[l.Stream], r), l.End
	}
	return start(t, j)
}
