from cursor_gateway.cli.main import main

main()
