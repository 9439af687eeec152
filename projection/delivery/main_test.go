package delivery_test

import (
	"testing"

	"github.com/leadlog/leadlog/deploy/pgdev/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
