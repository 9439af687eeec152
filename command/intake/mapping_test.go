package intake

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/eventstore/event"
)

func compiled(t *testing.T, settings event.IntakeSettings) *Mapping {
	t.Helper()
	m, err := Compile(settings)
	require.NoError(t, err)
	return m
}

func TestCompile_DefaultsOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		compiled(t, event.IntakeSettings{Kind: kind})
		for name := range DefaultMapping(kind) {
			require.Contains(t, MappingFields(), name, kind)
		}
	}
}

func TestMap_Form(t *testing.T) {
	t.Parallel()
	m := compiled(t, event.IntakeSettings{Kind: Form})
	mapped, wrong := m.Map(Request{
		ContentType: "application/x-www-form-urlencoded",
		Body:        []byte("name=Asha&tel=98765+43210&utm_source=x&color=red&color=blue"),
		Headers:     map[string]string{"idempotency-key": "k1"},
	})
	require.Empty(t, wrong)
	require.Equal(t, "k1", mapped.DeliveryID)
	require.Equal(t, map[string]jsontext.Value{
		"name": jsontext.Value(`"Asha"`), "phone": jsontext.Value(`"98765 43210"`),
		"customFields": jsontext.Value(`{"color":["red","blue"]}`),
		"metadata":     jsontext.Value(`{"source":"website","utm_source":"x"}`),
	}, mapped.Body)
}
