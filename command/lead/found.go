package lead

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// foundInstead is the end of the error of a body without a phone and an email. It names what the body has instead, such
// as a member in another spelling or an object around all members: up to three, those first whose names are like that
// of a contact.
func foundInstead(body map[string]jsontext.Value) string {
	type member struct {
		path []string
		rank int
	}
	var found []member
	for key, value := range body {
		_, ours := reserved[key]
		members, _ := Members(value)
		before := len(found)
		for name := range members {
			if likeContact(name) {
				found = append(found, member{[]string{key, name}, 0})
			}
		}
		switch {
		case ours, len(found) > before:
		case likeContact(key):
			found = append(found, member{[]string{key}, 0})
		case value.Kind() == '{', value.Kind() == '[':
			found = append(found, member{[]string{key}, 1})
		default:
			found = append(found, member{[]string{key}, 2})
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.SortFunc(found, func(a, b member) int { return cmp.Or(a.rank-b.rank, slices.Compare(a.path, b.path)) })
	names := make([]string, min(len(found), 3))
	for i := range names {
		for at, key := range found[i].path {
			found[i].path[at] = shorten(key)
		}
		names[i] = strconv.Quote(strings.Join(found[i].path, "."))
	}
	return ", by exactly this name at the top level; the body has " + strings.Join(names, ", ")
}

// likeContact reports whether a name is like that of a phone or email.
func likeContact(name string) bool {
	plain := simple(name)
	return slices.ContainsFunc([]string{"phone", "mail", "mobile", "whatsapp", "tel"}, func(part string) bool {
		return strings.Contains(plain, part)
	})
}
