package service

import "runtime/debug"

// Build returns the version and commit that the Go tool recorded in the binary.
func Build() (version, commit string) {
	version, commit = "devel", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, commit
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = setting.Value
		}
		if setting.Key == "vcs.modified" && setting.Value == "true" {
			commit += "+changes"
		}
	}
	return version, commit
}
