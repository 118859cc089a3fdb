{
  description = "search-to-signal from uv.lock, wheels only";

  inputs = {
    # 25.11 is the last release with Python 3.10.
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";
    pyproject-nix = {
      url = "github:pyproject-nix/pyproject.nix";
      inputs.nixpkgs.follows = "nixpkgs";
    };
    uv2nix = {
      url = "github:pyproject-nix/uv2nix";
      inputs.pyproject-nix.follows = "pyproject-nix";
      inputs.nixpkgs.follows = "nixpkgs";
    };
    build-systems = {
      url = "github:pyproject-nix/build-system-pkgs";
      inputs.pyproject-nix.follows = "pyproject-nix";
      inputs.uv2nix.follows = "uv2nix";
      inputs.nixpkgs.follows = "nixpkgs";
    };
  };

  outputs = { nixpkgs, pyproject-nix, uv2nix, build-systems, ... }:
    let
      pkgs = nixpkgs.legacyPackages.x86_64-linux;
      workspace = uv2nix.lib.workspace.loadWorkspace { workspaceRoot = ../..; };
      base = pkgs.callPackage pyproject-nix.build.packages { python = pkgs.python310; };
      python = base.overrideScope (pkgs.lib.composeManyExtensions [
        build-systems.overlays.default
        (workspace.mkPyprojectOverlay { sourcePreference = "wheel"; })
      ]);
      environment = name: dependencies: python.mkVirtualEnv name dependencies;
    in
    {
      packages.x86_64-linux = {
        default = environment "search-to-signal" { search-to-signal = [ "run" ]; };
        everything = environment "search-to-signal-everything" workspace.deps.optionals;
      };
      devShells.x86_64-linux.default = pkgs.mkShell {
        packages = [ (environment "search-to-signal-dev" workspace.deps.all) pkgs.uv ];
      };
    };
}
