package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

func TestTheDocumentIsThatOfItsSource(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../openapi.yaml")
	require.NoError(t, err)
	made, err := convert(source)
	require.NoError(t, err)
	require.True(t, string(made) == string(openapi.Document("")), "it is older than openapi.yaml: go generate ./httpapi/openapi")
}

func TestAnchorsAreWrittenOutAndOrderIsKept(t *testing.T) {
	t.Parallel()
	made, err := convert([]byte("z: &z [1, \"1\", null, true] # one\na: *z\n"))
	require.NoError(t, err)
	require.JSONEq(t, `{"z":[1,"1",null,true],"a":[1,"1",null,true]}`, string(made))
	require.Less(t, string(made)[:6], "{\n  \"zz", "z comes first")
	_, err = convert([]byte("a: 1\na: 2\n"))
	require.Error(t, err)
}
