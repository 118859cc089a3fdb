# Every wheel of uv.lock that Linux x86_64 with CPython 3.10 can use, as a fixed-output derivation.
#   nix-instantiate --eval --strict -A count artifact/lock/wheels.nix
{ lock ? builtins.fromTOML (builtins.readFile ../../uv.lock) }:
let
  # Plain strings are enough here: spec/test_lock.py asserts the exact rules of wheel tags.
  usable = name:
    builtins.match ".*-(py3|py2\\.py3|cp310|cp3[0-9])-(none|abi3|cp310)-(any|.*linux.*_x86_64.*)\\.whl" name != null;
  fileName = url: builtins.elemAt (builtins.match ".*/([^/]+)" url) 0;
  fetch = wheel: derivation {
    name = fileName wheel.url;
    builder = "builtin:fetchurl";
    system = "builtin";
    url = wheel.url;
    urls = [ wheel.url ];
    outputHashMode = "flat";
    outputHashAlgo = "sha256";
    outputHash = builtins.substring 7 64 wheel.hash;
    executable = false;
    unpack = false;
    preferLocalBuild = true;
  };
  wheels = builtins.concatMap (package: package.wheels or [ ]) lock.package;
  drvs = map fetch (builtins.filter (wheel: usable (fileName wheel.url)) wheels);
in
{
  inherit drvs;
  packages = builtins.length lock.package;
  count = builtins.length drvs;
}
