package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leadlog/leadlog/httpapi/openapi"
)

func TestConvert_DocumentIsCurrent(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../openapi.yaml")
	require.NoError(t, err)
	converted, err := convert(source)
	require.NoError(t, err)
	require.True(t, string(converted) == string(openapi.Document("")),
		"openapi.json is out of date: run go generate ./httpapi/openapi")
}

func TestConvert_ExpandsAnchorsAndKeepsOrder(t *testing.T) {
	t.Parallel()
	converted, err := convert([]byte("z: &z [1, \"1\", null, true] # one\na: *z\n"))
	require.NoError(t, err)
	require.JSONEq(t, `{"z":[1,"1",null,true],"a":[1,"1",null,true]}`, string(converted))
	require.Regexp(t, `^\{\s*"z"`, string(converted), "the order of keys is kept")
	_, err = convert([]byte("a: 1\na: 2\n"))
	require.Error(t, err)
}
