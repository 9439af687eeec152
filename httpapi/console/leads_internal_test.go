package console

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/query"
)

func TestMasker_MasksUnlistedFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ field, value, masked, revealed string }{
		{"name", "Asha Rao", "A••• R•••", "Asha Rao"},
		{"phone", "+919876543210", "+91•••10", "+919876543210"},
		{"email", "asha@example.com", "a•••@•••.com", "asha@example.com"},
		{"status", "new", "new", "new"},
		{"opportunityValue", "120000", "120000", "120000"},
		{"customFields", `"Pune"`, "•••", "Pune"},
		{"metadata", `{"a":1}`, "•••", `{"a":1}`},
		{"fieldOfTheFuture", "Pune", "•••", "Pune"},
		{"fieldOfTheFuture", "", "", ""},
	} {
		require.Equal(t, c.masked, masker{}.value(c.field, c.value), c.field)
		require.Equal(t, c.revealed, masker{revealed: true}.value(c.field, c.value), c.field)
	}
}

func TestMasker_MasksUnlistedMembers(t *testing.T) {
	t.Parallel()
	data := jsontext.Value(`{"status":"new","fieldOfTheFuture":"Pune"}`)
	require.JSONEq(t, `{"status":"new","fieldOfTheFuture":"•••"}`, masker{}.raw(data))
	require.JSONEq(t, string(data), masker{revealed: true}.raw(data))
}

// A template shows the members of a masked lead as they are.
func TestMasker_MasksEveryPersonalMember(t *testing.T) {
	t.Parallel()
	var one query.Lead
	record := reflect.ValueOf(&one.Record).Elem()
	fill := func(i int) (name string, text bool) {
		name, _, _ = strings.Cut(record.Type().Field(i).Tag.Get("json"), ",")
		return name, record.Field(i).Kind() == reflect.String
	}
	for i := range record.NumField() {
		if name, text := fill(i); text {
			record.Field(i).SetString("the " + name)
		}
	}
	masked := reflect.ValueOf(masker{}.lead(one).Record)
	for i := range masked.NumField() {
		if name, text := fill(i); text {
			require.Equal(t, slices.Contains(impersonal, name), masked.Field(i).String() == "the "+name, name)
		}
	}
	require.Equal(t, one, masker{revealed: true}.lead(one).Lead)
}
