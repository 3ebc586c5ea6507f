// Command lua runs `Retain` of a Karmada interpreter script as Karmada runs it: gopher-lua, without the
// functions that Karmada takes away, within a second.
//
//	lua SCRIPT DESIRED.json OBSERVED.json   prints the retained object
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lua:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("usage: lua SCRIPT DESIRED.json OBSERVED.json")
	}
	script, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	for _, gone := range []string{
		"collectgarbage", "dofile", "getfenv", "getmetatable", "load", "loadfile", "loadstring", "rawequal",
		"rawget", "rawset", "setfenv", "setmetatable", "module", "newproxy",
	} {
		l.SetGlobal(gone, lua.LNil)
	}
	within, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.SetContext(within)
	if err := l.DoString(string(script)); err != nil {
		return err
	}
	objects := make([]lua.LValue, 2)
	for i, path := range args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		objects[i] = toLua(l, value)
	}
	call := lua.P{Fn: l.GetGlobal("Retain"), NRet: 1, Protect: true}
	if err := l.CallByParam(call, objects...); err != nil {
		return err
	}
	table, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return fmt.Errorf("Retain gave a %s, not a table", l.Get(-1).Type())
	}
	return json.NewEncoder(os.Stdout).Encode(fromLua(table))
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		table := l.NewTable()
		for _, item := range value {
			table.Append(toLua(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range value {
			table.RawSetString(key, toLua(l, item))
		}
		return table
	default:
		return lua.LNil
	}
}

func fromLua(value lua.LValue) any {
	switch value := value.(type) {
	case lua.LBool:
		return bool(value)
	case lua.LNumber:
		return float64(value)
	case lua.LString:
		return string(value)
	case *lua.LTable:
		if value.Len() > 0 {
			items := []any{}
			value.ForEach(func(_, item lua.LValue) { items = append(items, fromLua(item)) })
			return items
		}
		members := map[string]any{}
		value.ForEach(func(key, item lua.LValue) { members[key.String()] = fromLua(item) })
		return members
	default:
		return nil
	}
}
