package leadfile

import (
	"fmt"
	"strings"
)

// OtherFormat returns an error if a file is known to have neither a table nor JSON lines, by its Start. Bracket says
// that one that begins with a bracket may be a table.
func OtherFormat(start string, bracket bool) error {
	for _, other := range others {
		if len(start) < len(other.begin) || !strings.EqualFold(start[:len(other.begin)], other.begin) {
			continue
		}
		if other.begin == "[" && bracket {
			break // a column may be called so
		}
		return fmt.Errorf("this is %s: %s", other.is, other.remedy)
	}
	return nil
}

// Start is the beginning of a file without a byte order mark and blank space.
func Start(head string) string {
	for _, mark := range []string{byteOrderMark, "\xff\xfe", "\xfe\xff"} {
		head = strings.TrimPrefix(head, mark)
	}
	return strings.TrimLeft(head, " \t\r\n")
}

const (
	saveAsCSV = "open it in the spreadsheet program, save it as CSV (in Excel: Save As, CSV UTF-8), and import that"
	exportCSV = "export the contacts as CSV from the program that it comes from, and import that"
)

// others are kinds of files that have no table or JSON lines: how they begin, in lower case, what they are, and what to
// do.
var others = []struct{ begin, is, remedy string }{
	{"pk\x03\x04", "a spreadsheet (XLSX), or another packed file", saveAsCSV + "; unpack a ZIP file"},
	{"\xd0\xcf\x11\xe0", "an old Excel workbook (XLS)", saveAsCSV},
	{"\x1f\x8b", "compressed by gzip", "unpack it"},
	{"%pdf-", "a PDF, which is for printing", exportCSV},
	{"{\\rtf", "a text document (RTF)", exportCSV},
	{
		"begin:vcard", "a file of vCards",
		exportCSV + ", or import it into Google Contacts and export a Google CSV there",
	},
	{"<?xml", "XML, as some programs export for Excel", saveAsCSV},
	{"<!doctype html", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"<html", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"<table", "a web page (HTML), as some programs export for Excel", saveAsCSV},
	{"[", "a JSON array", "write an object a line, as jq -c '.[]' does"},
	{"{\x00", "JSON in UTF-16", "convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does"},
	{"\x00{", "JSON in UTF-16", "convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does"},
	{"{\n", "JSON over several lines", "write an object a line, as jq -c . does"},
	{"{\r\n", "JSON over several lines", "write an object a line, as jq -c . does"},
}
