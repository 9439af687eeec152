package service

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory_LowestLimit(t *testing.T) {
	t.Parallel()
	const (
		meminfo   = "MemTotal:       16384 kB\nMemFree:        1 kB\n"
		groupMax  = "/sys/fs/cgroup/memory.max"
		oldMax    = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
		ofService = "/sys/fs/cgroup/system.slice/leadlog.service/memory.max"
		ofSlice   = "/sys/fs/cgroup/system.slice/memory.max"
		service   = "0::/system.slice/leadlog.service\n"
	)
	for _, c := range []struct {
		want  int64
		files map[string]string
	}{
		{16 << 20, map[string]string{groupMax: "max\n", machineMemory: meminfo}},
		{1 << 20, map[string]string{groupMax: "1048576\n", machineMemory: meminfo}},
		{2 << 20, map[string]string{oldMax: "2097152\n", machineMemory: meminfo}},
		{16 << 20, map[string]string{oldMax: "9223372036854771712\n", machineMemory: meminfo}},
		{3 << 20, map[string]string{ownGroups: service, ofService: "3145728\n", machineMemory: meminfo}},
		{2 << 20, map[string]string{ownGroups: service, ofService: "3145728\n", ofSlice: "2097152\n"}},
		{3 << 20, map[string]string{ownGroups: service, ofService: "3145728\n", ofSlice: "max\n"}},
		{1 << 20, map[string]string{ownGroups: "3:cpu:/\n4:memory:/a/b\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n"}},
		{1 << 20, map[string]string{ownGroups: "0::/../..\nnothing\n", groupMax: "1048576\n"}},
		{math.MaxInt64, map[string]string{groupMax: "", machineMemory: "MemTotal: many kB\n"}},
	} {
		require.Equal(t, c.want, memory(func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("no such file")
		}), "%v", c.files)
	}
	require.EqualValues(t, leastBodies, bodyBudget(0))
	require.EqualValues(t, mostBodies, bodyBudget(math.MaxInt64))
	require.EqualValues(t, 32<<20, bodyBudget(512<<20))
}
