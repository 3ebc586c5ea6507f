// Writes liveness.jsonl and spelling.jsonl into the working directory: what Go's encoding/json and
// k8s.io/apimachinery answer. Each case is a name and a text.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"throughline/tests/apiserver/platform"
)

const (
	ready   = `"conditions":[{"type":"Ready","status":"True"}]`
	details = `"connectionDetails":{"type":"PublicKey","publicKey":{"id":"a"}}`
	live    = `{"conditions":[{"type":"Ready","status":"True"}],"connectionDetails":{"type":"PublicKey","publicKey":{"id":"live"}}}`
)

// with is an online status with node id "a" and more members at its end.
func with(more string) string { return "{" + ready + "," + details + "," + more + "}" }

// condition is a status whose one condition is Ready, with more members at its end.
func condition(more string) string {
	return `{"conditions":[{"type":"Ready","status":"True",` + more + `}],` + details + `}`
}

// key is an online status whose public key has these members.
func key(members string) string {
	return "{" + ready + `,"connectionDetails":{"type":"PublicKey","publicKey":{` + members + `}}}`
}

var livenessCases = [][2]string{
	{"only white space", " \n\t\r "},
	{"white space that is none", "\u00a0" + with(`"x":1`)},
	{"form feed is no white space", "\f{}"},
	{"byte order mark", "\ufeff" + with(`"x":1`)},
	{"true", "true"},
	{"null with more", "null null"},
	{"null in capitals", "NULL"},
	{"null and space", " null\n"},
	{"two documents", "{}{}"},
	{"nul after the end", "{}\x00"},
	{"trailing comma", `{"conditions":[],}`},
	{"comment", `{}//`},
	{"single quotes", `{'conditions':[]}`},

	{"keys in capitals", `{"CONDITIONS":[{"TYPE":"Ready","STATUS":"True"}],"CONNECTIONDETAILS":{"TYPE":"PublicKey","PUBLICKEY":{"ID":"caps"}}}`},
	{"long s folds", `{"condition\u017f":[{"type":"Ready","\u017ftatu\u017f":"True"}],` + details + `}`},
	{"Kelvin sign folds", `{` + ready + `,"connectionDetails":{"type":"PublicKey","publicKey":{"id":"b"}, "publicK\u0065y":{"id":"c"}, "public\u212aey":{"id":"kelvin"}}}`},
	{"long s unescaped", `{"conditionſ":[{"type":"Ready","status":"True"}]}`},
	{"dotless i does not fold", `{"cond\u0131tions":5,` + ready + `}`},
	{"dotted capital i does not fold", `{"cond\u0130tions":5,` + ready + `}`},
	{"sharp s does not fold", `{"addreßes":5,"leaseRef":{"name":"l"},` + ready + `}`},
	{"wrong type under a folded key", with(`"LeaseRef":5`)},
	{"wrong type under a key with long s", with(`"lea\u017feRef":5`)},
	{"escaped keys", `{"c\u006fnditions":[{"t\u0079pe":"Ready","status":"True"}],` + details + `}`},
	{"escaped values", `{"conditions":[{"type":"\u0052eady","status":"Tru\u0065"}],"connectionDetails":{"type":"Public\u004bey","publicKey":{"id":"\u0061\/\"\\\n\ud83d\ude00"}}}`},
	{"almost a key", `{"condition":5,"conditionss":5,"":5,"conditions ":5,` + ready + `}`},
	{"values do not fold", `{"conditions":[{"type":"ready","status":"True"},{"type":"READY","status":"True"}]}`},
	{"type of details does not fold", `{` + ready + `,"connectionDetails":{"type":"publickey","publicKey":{"id":"a"}}}`},

	{"conditions twice, last counts", `{"conditions":[{"type":"Ready","status":"False"}],"conditions":[{"type":"Ready","status":"True"}]}`},
	{"conditions twice, merged", `{"conditions":[{"type":"Ready","status":"True"}],"conditions":[{"type":"Ready"}]}`},
	{"conditions twice, type kept", `{"conditions":[{"type":"Ready","status":"False"}],"conditions":[{"status":"True"}]}`},
	{"conditions twice, shorter", `{"conditions":[{"type":"A","status":"True"},{"type":"Ready","status":"True"}],"conditions":[{}]}`},
	{"conditions thrice, shortened comes back", `{"conditions":[{"type":"A","status":"True"},{"type":"Ready","status":"True"}],"conditions":[{}],"conditions":[{},{}]}`},
	{"conditions thrice, emptied does not come back", `{"conditions":[{"type":"Ready","status":"True"}],"conditions":[],"conditions":[{}]}`},
	{"conditions thrice, nulled does not come back", `{"conditions":[{"type":"Ready","status":"True"}],"conditions":null,"conditions":[{}]}`},
	{"conditions grown, shortened, grown", `{"conditions":[{"type":"A"},{"type":"B"},{"type":"Ready","status":"True"}],"conditions":[{"type":"C"}],"conditions":[null,{"type":"D"},null,null,null,null]}`},
	{"null condition keeps", `{"conditions":[{"type":"Ready","status":"True"}],"conditions":[null]}`},
	{"condition overwritten by null fields", `{"conditions":[{"type":"Ready","status":"True"}],"conditions":[{"type":null,"status":null}]}`},
	{"conditions emptied", `{` + ready + `,"conditions":[]}`},
	{"conditions nulled", `{` + ready + `,"conditions":null}`},
	{"conditions again in capitals", `{` + ready + `,"Conditions":[{"status":"False"}]}`},
	{"exact key does not win over a folded one", `{"Conditions":[{"type":"Ready","status":"False"}],"conditions":[{"type":"Ready","status":"True"}],"CONDITIONS":[{"type":"x"}]}`},
	{"wrong type, then right", with(`"leaseRef":5,"leaseRef":{"name":"l"}`)},
	{"type twice", `{"conditions":[{"type":"Ready","type":"Other","status":"True"}]}`},
	{"type twice, Ready last", `{"conditions":[{"type":"Other","type":"Ready","status":"True"}]}`},
	{"status twice", `{"conditions":[{"type":"Ready","status":"True","status":"False"}]}`},
	{"status twice, True last", `{"conditions":[{"type":"Ready","status":"False","Status":"True"}]}`},
	{"details twice, merged", `{` + ready + `,"connectionDetails":{"type":"PublicKey"},"connectionDetails":{"publicKey":{"id":"merged"}}}`},
	{"details twice, type changed", with(`"connectionDetails":{"type":"Relay"}`)},
	{"details twice, id kept", with(`"connectionDetails":{"publicKey":{"homeRelay":"r"}}`)},
	{"details nulled", with(`"connectionDetails":null`)},
	{"details nulled, then partly back", with(`"connectionDetails":null,"connectionDetails":{"type":"PublicKey","publicKey":{}}`)},
	{"details nulled, then without type", with(`"connectionDetails":null,"connectionDetails":{"publicKey":{"id":"b"}}`)},
	{"public key nulled", with(`"connectionDetails":{"publicKey":null}`)},
	{"public key nulled, then back", with(`"connectionDetails":{"publicKey":null},"connectionDetails":{"publicKey":{"homeRelay":"x"}}`)},
	{"id twice", key(`"id":"a","id":"b"`)},
	{"id nulled keeps", key(`"id":"a","id":null`)},
	{"details before conditions", `{` + details + `,` + ready + `}`},
	{"two Ready, first True", `{"conditions":[{"type":"Ready","status":"True"},{"type":"Ready","status":"False"}]}`},
	{"two Ready, first without status", `{"conditions":[{"type":"Ready"},{"type":"Ready","status":"True"}]}`},
	{"status padded", `{"conditions":[{"type":"Ready","status":"True "}]}`},
	{"status empty", `{"conditions":[{"type":"Ready","status":""}]}`},
	{"type of details missing", `{` + ready + `,"connectionDetails":{"publicKey":{"id":"a"}}}`},
	{"null conditions inside", `{"conditions":[null,{"type":"Ready","status":"True"}]}`},
	{"everything null", `{"conditions":[{"type":null,"status":null,"reason":null,"message":null,"lastTransitionTime":null,"observedGeneration":null}],"connectionDetails":{"type":null,"publicKey":{"id":null,"discoveryMode":null,"homeRelay":null,"addresses":[null,{"address":null,"port":null}]}},"capabilities":[null,{"type":null,"conditions":null}],"leaseRef":{"name":null}}`},
	{"addresses null, capabilities null", with(`"capabilities":null,"leaseRef":null,"connectionDetails":{"publicKey":{"addresses":null}}`)},

	{"conditions a string", `{"conditions":""}`},
	{"conditions false", `{"conditions":false}`},
	{"condition a number", `{"conditions":[1]}`},
	{"condition a list", `{"conditions":[[]]}`},
	{"condition a string", `{"conditions":["Ready"]}`},
	{"details a list", with(`"connectionDetails":[]`)},
	{"details a string", with(`"connectionDetails":"x"`)},
	{"public key a string", with(`"connectionDetails":{"publicKey":"x"}`)},
	{"public key a list", with(`"connectionDetails":{"publicKey":[]}`)},
	{"details type a number", with(`"connectionDetails":{"type":1}`)},
	{"id a number", key(`"id":1`)},
	{"id an object", key(`"id":{}`)},
	{"id a list", key(`"id":[]`)},
	{"home relay a bool", key(`"homeRelay":true`)},
	{"discovery mode a number", key(`"discoveryMode":0`)},
	{"addresses an object", key(`"addresses":{}`)},
	{"address a string", key(`"addresses":["198.51.100.7:1"]`)},
	{"address of address a number", key(`"addresses":[{"address":1}]`)},
	{"capabilities an object", with(`"capabilities":{}`)},
	{"capability a string", with(`"capabilities":["ConnectTCP"]`)},
	{"capability type a number", with(`"capabilities":[{"type":1}]`)},
	{"capability conditions an object", with(`"capabilities":[{"conditions":{}}]`)},
	{"capability condition status a bool", with(`"capabilities":[{"conditions":[{"status":true}]}]`)},
	{"capability time", with(`"capabilities":[{"conditions":[{"lastTransitionTime":"x"}]}]`)},
	{"capability in full", with(`"capabilities":[{"type":"ConnectTCP","x":[],"conditions":[{"type":"Ready","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-05-01T10:00:00Z","observedGeneration":3,"x":1}]}]`)},
	{"lease a string", with(`"leaseRef":"l"`)},
	{"lease name a number", with(`"leaseRef":{"name":1}`)},
	{"lease in full", with(`"leaseRef":{"x":{"name":1},"name":"l"}`)},
	{"status a bool", `{"conditions":[{"type":"Ready","status":true}]}`},
	{"type a number", `{"conditions":[{"type":1,"status":"True"}]}`},
	{"reason a number", condition(`"reason":1`)},
	{"message a list", condition(`"message":[]`)},
	{"message null", condition(`"message":null`)},
	{"time a number", condition(`"lastTransitionTime":1763715600`)},
	{"time an object", condition(`"lastTransitionTime":{}`)},
	{"time a list", condition(`"lastTransitionTime":[]`)},
	{"time a bool", condition(`"lastTransitionTime":false`)},
	{"time null", condition(`"lastTransitionTime":null`)},
	{"time good, then bad", condition(`"lastTransitionTime":"2026-05-01T10:00:00Z","lastTransitionTime":"x"`)},
	{"time bad, then good", condition(`"lastTransitionTime":"x","lastTransitionTime":"2026-05-01T10:00:00Z"`)},
	{"time escaped", condition(`"lastTransitionTime":"2026-05-01\u005410:00:00\u005a"`)},

	{"unknown fields of every kind", with(`"a":1e999,"b":-0,"c":[[],{},[{"d":[1,2.5E+3]}]],"e":"\ud800","f":true,"g":null`)},
	{"unknown field, bad number", with(`"a":01`)},
	{"unknown field, bare minus", with(`"a":-`)},
	{"unknown field, NaN", with(`"a":NaN`)},
	{"unknown field, bad escape", with(`"a":"\x"`)},
	{"unknown field, bad unicode escape", with(`"a":"\u12g4"`)},
	{"unknown field, raw newline", with("\"a\":\"\n\"")},
	{"unknown field, raw tab", with("\"a\":\"\t\"")},
	{"unknown field, raw delete", with("\"a\":\"\x7f\"")},
	{"unknown field, unclosed list", with(`"a":[1`)},
	{"unknown field, wrong closer", with(`"a":[1}`)},
	{"unknown field, 200 levels", with(`"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200))},
	{"raw newline in a message", condition("\"message\":\"\n\"")},
	{"raw control in an escaped message", condition("\"message\":\"\\n\x01\"")},
	{"lone surrogate in a message", condition(`"message":"\ud83d"`)},
	{"lone surrogates in the id", key(`"id":"\ud83d|\ude00|\ud83d\u0041|\ud83d\ud83d\ude00|\ude00\ud83d"`)},
	{"lone surrogate in a key", with(`"\udc00conditions":5`)},
	{"replacement character in the id", key(`"id":"\ufffd"`)},
	{"nul in the id", key(`"id":"a\u0000b"`)},
	{"escaped noncharacter in the id", key(`"id":"\uffff\u2028"`)},
}

// Values of the two kinds of integer field, as they stand in the text.
var integers = []string{
	"0", "-0", "-1", "1.0", "1.5", "1e3", "1E0", "true", `"1"`, "null", "{}", "[]", "01", "1.",
	"65536", "2147483647", "2147483648", "-2147483648", "-2147483649",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
	"18446744073709551616", "1" + strings.Repeat("0", 60),
}

// Values of lastTransitionTime.
var times = []string{
	"2026-05-01T10:00:00Z", "2026-05-01T10:00:00z", "2026-05-01t10:00:00Z", "2026-05-01 10:00:00Z",
	"2026-05-01T1:00:00Z", "2026-05-01T001:00:00Z", "2026-05-01T1:0:00Z", "2026-05-01T10:00:0Z",
	"2026-5-01T10:00:00Z", "2026-05-1T10:00:00Z", "226-05-01T10:00:00Z", "+2026-05-01T10:00:00Z",
	"12026-05-01T10:00:00Z", "-001-05-01T10:00:00Z", "0000-01-01T00:00:00Z", "0000-02-29T00:00:00Z", "9999-12-31T23:59:59Z",
	"2026-00-01T10:00:00Z", "2026-13-01T10:00:00Z", "2026-01-00T10:00:00Z", "2026-01-31T10:00:00Z",
	"2026-01-32T10:00:00Z", "2026-04-30T10:00:00Z", "2026-04-31T10:00:00Z", "2026-06-31T10:00:00Z", "2026-09-31T10:00:00Z",
	"2026-11-31T10:00:00Z", "2026-12-31T10:00:00Z", "2026-03-31T10:00:00Z", "2026-05-31T10:00:00Z", "2026-07-31T10:00:00Z",
	"2026-08-31T10:00:00Z", "2026-10-31T10:00:00Z", "2026-02-28T10:00:00Z", "2026-02-29T10:00:00Z", "2024-02-29T10:00:00Z",
	"2024-02-30T10:00:00Z", "2000-02-29T10:00:00Z", "1900-02-29T10:00:00Z", "2100-02-29T10:00:00Z", "0400-02-29T10:00:00Z",
	"2026-05-01T23:59:59Z", "2026-05-01T24:00:00Z", "2026-05-01T10:60:00Z", "2026-05-01T23:59:60Z",
	"2026-05-01T10:00:00.5Z", "2026-05-01T10:00:00,5Z", "2026-05-01T10:00:00.123456789012345Z",
	"2026-05-01T10:00:00.Z", "2026-05-01T10:00:00,Z", "2026-05-01T10:00:00.5", "2026-05-01T10:00:00.5.5Z",
	"2026-05-01T10:00:00;5Z", "2026-05-01T10:00:00", "2026-05-01T10:00Z", "2026-05-01", "", "Z", "null",
	"2026-05-01T10:00:00Z ", " 2026-05-01T10:00:00Z", "2026-05-01T10:00:00ZZ", "2026-05-01T10:00:00UTC",
	"2026-05-01T10:00:00+00:00", "2026-05-01T10:00:00-07:30", "2026-05-01T10:00:00.25+05:45",
	"2026-05-01T10:00:00+24:00", "2026-05-01T10:00:00+24:60", "2026-05-01T10:00:00+25:00",
	"2026-05-01T10:00:00+00:61", "2026-05-01T10:00:00-24:60", "2026-05-01T10:00:00+99:99",
	"2026-05-01T10:00:00+0100", "2026-05-01T10:00:00+01", "2026-05-01T10:00:00+1:00", "2026-05-01T10:00:00+01:0",
	"2026-05-01T10:00:00+01:000", "2026-05-01T10:00:00*01:00", "2026-05-01T10:00:00\u221201:00", "2026-05-01T10:00:00+0a:00",
	"2026-05-01T10:00:00+01:0a", "2026/05/01T10:00:00Z", "2026-05/01T10:00:00Z", "2026-05-01T10-00:00Z", "2026-05-01T10:00-00Z",
	"2O26-05-01T10:00:00Z", "20a6-05-01T10:00:00Z", "2026-0a-01T10:00:00Z", "2026-05-0aT10:00:00Z", "2026-05-01T1a:00:00Z",
	"2026-05-01Ta:00:00Z", "2026-05-01T10:0a:00Z", "2026-05-01T10:00:0aZ", "\u0662026-05-01T10:00:00Z",
}

var spellingCases = [][2]string{
	{"null", "null"}, {"true", " true "}, {"a string", `"x"`}, {"a list", "[ ]"}, {"empty text", ""},
	{"space only", " "}, {"two values", "1 2"}, {"broken", `{"a":`}, {"trailing comma", "[1,]"},
	{"byte order mark", "\ufeff{}"}, {"leading zero", "[01]"}, {"bare word", "nul"},
	{"repeated key", `{"a":1,"b":2,"a":3}`},
	{"repeated key, nested", `{"x":{"a":{"b":1}},"x":{"a":{"c":2}}}`},
	{"repeated key, thrice", `{"a":1,"a":{"z":1,"y":2},"a":[]}`},
	{"repeated key, spelled differently", `{"\u0061":1,"a":2}`},
	{"repeated key, sorted", `{"a":1,"a":2,"b":3}`},
	{"keys differ by case", `{"b":1,"B":2}`},
	{"keys sorted by what they say", `{"z":1,"<":2,"=":3,"\n":4,"\u2028":5,"":6,"\"":7,"[":8,"\\":9}`},
	{"keys beyond the basic plane", `{"\ud83d\ude00":1,"\uffff":2,"\ue000":3}`},
	{"lone surrogate", `{"a":"\ud83d","\udc00":"\ude00\ud83d","b":"\ud83dx\ud83d\ud83d\ude00"}`},
	{"lone surrogates as keys are one key", `{"\ud800":1,"\udbff":2,"\ufffd":3}`},
	{"surrogate and an escape", `["\ud83d\n","\ud83d\\ude00","\ud83d\u0041"]`},
	{"capital hex digits", `"\uD83D\uDE00\u00E9\u003C"`},
	{"slash", `"\/ /"`},
	{"controls", `"\u0001\u0007\u0008\u000b\u000c\u000e\u001e\u001f\u0020\u007f\u0080\u009f"`},
	{"html in keys", `{"<a>&":"'"}`},
	{"near the separators", `"\u2027\u2028\u2029\u202a\u00e2\u2000"`},
	{"separators unescaped", "\"\u2028a\u2029\u202a\""},
	{"noncharacters", `"\uffff\ufffe\ufeff"`},
	{"raw control", "\"\x01\""}, {"raw delete", "\"\x7f\""},
	{"empty key", `{"":{"":[]}}`},
	{"nested and unsorted", `{"b":{"d":[{"f":1,"e":2},3],"c":{}},"a":[[],[{"y":[],"x":null}]]}`},
	{"more than twenty keys", `{"y":1,"x":1,"w":1,"v":1,"u":1,"t":1,"s":1,"r":1,"q":1,"p":1,"o":1,"n":1,"m":1,"l":1,"k":1,"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"x":2,"b":1,"a":1,"y":2}`},
	{"100 levels", strings.Repeat(`{"b":1,"a":`, 100) + "0" + strings.Repeat("}", 100)},
}

var numbers = []string{
	"0", "-0", "0.0", "-0.0", "0e5", "-0e-5", "1", "-1", "1.0", "-1.0", "10.50", "1E5", "1e+5", "1e-5", "1e-6", "1e-7", "9.99e-7", "1.5e-6",
	"0.1", "0.2", "0.3", "0.30000000000000004", "1e3", "100e-2", "123456789.125", "1.7976931348623157e308", "1e308", "1.8e308", "1e309", "1e400", "-1e400",
	"5e-324", "4.9e-324", "2e-324", "3e-324", "1e-400", "-1e-400", "2.2250738585072014e-308", "2.225073858507201e-308", "1e-10", "1e-9", "1e-99", "1e-100",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
	"9007199254740993", "9007199254740993.0", "100000000000000000000", "1e20", "999999999999999999999", "1e21", "1000000000000000000000", "123456789012345678901234567890",
	"9.999999999999999e20", "9.9999999999999999e20", "1.2345e22", "1e22", "1e23", "-1e21", "1e100", "4.35", "2.675", "0.000001", "0.0000009999999", "0.00000123",
	"8.41e21", "9.5e-7", "179769313486231580793728971405301e277", "6.02214076e23", "1" + strings.Repeat("0", 308), "1" + strings.Repeat("0", 309), "0." + strings.Repeat("0", 330) + "1",
	"622464434535252.25", "-158922368707229.125", "178163000701607.625", "1125899906842624.25", "1125899906842624.75", "1.1641532182693481445e-10", "7.2057594037927933e16", "1.00000000000000011102230246251565404", "2.00416836000897278e-19", "3.08984926168550152811e-32", "-", "+1", ".5", "5.", "1e", "1e+", "0x10", "Infinity", "NaN", "00", "-01", "1_000",
}

type line map[string]any

func main() {
	var lines []line
	liveness := func(name, annotation, live string) {
		online, nodeID := platform.Read(annotation, live)
		lines = append(lines, line{"name": name, "annotation": annotation, "live": json.RawMessage(live), "online": online, "node_id": nodeID})
	}
	for _, c := range livenessCases {
		liveness(c[0], c[1], live)
	}
	for _, n := range integers {
		liveness("port "+n, key(`"id":"a","addresses":[{"address":"198.51.100.7","port":`+n+`}]`), live)
		liveness("observedGeneration "+n, condition(`"observedGeneration":`+n), live)
	}
	for _, t := range times {
		text, _ := json.Marshal(t)
		liveness("time "+string(text), condition(`"lastTransitionTime":`+string(text)), live)
	}
	for _, l := range []string{"[]", `{"conditions":5}`, "null", "{}", `{"conditions":[{"type":"Ready","status":"True"}]}`} {
		liveness("broken, live "+l, "x", l)
	}
	write("liveness.jsonl", lines)

	lines = nil
	spell := func(name, status string) {
		l := line{"name": name, "status": status}
		canonical, err := platform.Canonical(status)
		if err != nil {
			log.Fatal(err)
		}
		if canonical != nil {
			l["annotation"] = *canonical
		}
		lines = append(lines, l)
	}
	for _, c := range spellingCases {
		spell(c[0], c[1])
	}
	for _, n := range numbers {
		name := n
		if len(n) > 40 {
			name = fmt.Sprintf("%s… (%d digits)", n[:20], len(n))
		}
		spell("number "+name, `{"n":`+n+`}`)
	}
	write("spelling.jsonl", lines)
}

func write(name string, lines []line) {
	file, err := os.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	for _, l := range lines {
		if err := encoder.Encode(l); err != nil {
			log.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}
